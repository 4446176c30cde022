# type: ignore
"""Write golden.npz: files and outputs of the original implementations, for a tiny model.

    pip install torch transformers openai-whisper      in an environment of its own
    python make_golden.py convert-pt-to-ggml.py        the converter of whisper.cpp (models/)

A file is stored as its bytes: OpenAI's .pt by `torch.save`, Hugging Face's by `save_pretrained`,
ggml by the converter, `.tiktoken` and `tokenizer.json` of a small vocabulary. Outputs are of
openai-whisper and transformers in float32. `versions` says which.
"""

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tiktoken
import tokenizers
import torch
import transformers
import whisper
from tokenizers.pre_tokenizers import ByteLevel
from whisper.audio import log_mel_spectrogram
from whisper.tokenizer import Tokenizer, get_encoding

MERGES = (b" t", b"he", b" the", b" a", b"in", b"er", b"\xe3\x81", b"\xe3\x81\x82", b"ing", b" s")
PAIRS = ((b" ", b"t"), (b"h", b"e"), (b" t", b"he"), (b" ", b"a"), (b"i", b"n"), (b"e", b"r"),
         (b"\xe3", b"\x81"), (b"\xe3\x81", b"\x82"), (b"in", b"g"), (b" ", b"s"))  # fmt: skip
TOKENS = [bytes([byte]) for byte in range(256)] + list(MERGES)
TEXTS = [
    "the thing is here", " The there's  nothing, in\n\n the string...", "don't I'll we've THEY'RE",
    "あ漢字 あああ", "naïve café 123 4.5% ½", "  leading and trailing  ", "a😀b\u00a0c\u3000d",
    "<|endoftext|> is text", "[music] (laughs) ♪♪ -- hm", "",
]  # fmt: skip
SIZES = {"n_mels": 80, "n_audio_ctx": 20, "n_audio_state": 4, "n_audio_head": 1, "n_audio_layer": 2,
         "n_vocab": len(TOKENS) + 99 + 1509, "n_text_ctx": 12, "n_text_state": 4, "n_text_head": 1,
         "n_text_layer": 2}  # fmt: skip
NAMES = {
    "encoder.positional_embedding": "encoder.embed_positions.weight",
    "decoder.positional_embedding": "decoder.embed_positions.weight",
    "token_embedding": "embed_tokens", "encoder.ln_post": "encoder.layer_norm",
    "decoder.ln.": "decoder.layer_norm.", "blocks": "layers", "mlp_ln": "final_layer_norm",
    "mlp.0": "fc1", "mlp.2": "fc2", "cross_attn_ln": "encoder_attn_layer_norm",
    "cross_attn": "encoder_attn", ".attn_ln": ".self_attn_layer_norm", ".attn.": ".self_attn.",
    ".query.": ".q_proj.", ".key.": ".k_proj.", ".value.": ".v_proj.", ".out.": ".out_proj.",
}  # fmt: skip
PROMPT = [66, 67, 3, 12, 65]
SHOWN = 40  # logits of each position
FRAMES = (0, 1, 1500, 2999, 3000, 3100, 3299)  # of a recording


def recording() -> np.ndarray:
    """Return 33 s: noise of the last bits, then 3 s at almost full scale."""
    time = np.arange(33 * 16_000, dtype=np.int64)
    noise = (time * time * 7919 + time * 104_729) % 2001 - 1000
    return np.where(time < 30 * 16_000, noise // 999, noise * 30).astype(np.int16)


def original() -> whisper.model.Whisper:
    """Return a random model whose numbers are those of half precision."""
    torch.manual_seed(0)
    model = whisper.model.Whisper(whisper.model.ModelDimensions(**SIZES)).eval()
    state = {n: (0.3 * torch.randn_like(t)).half().float() for n, t in model.state_dict().items()}
    state["decoder.token_embedding.weight"][68:] = 0  # to be stored small
    model.load_state_dict(state)
    return model


def hugging_face(state: dict, folder: Path) -> transformers.WhisperForConditionalGeneration:
    """Return the same model in transformers, and save it; equal outputs show that names match."""
    config = transformers.WhisperConfig(
        vocab_size=SIZES["n_vocab"], num_mel_bins=80, d_model=4, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=1, decoder_attention_heads=1, encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_source_positions=20, max_target_positions=12, pad_token_id=0, bos_token_id=0,
        eos_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    renamed = {}
    for name, tensor in state.items():
        for ours, hf in NAMES.items():
            name = name.replace(ours, hf)
        renamed[name] = tensor
    model = transformers.WhisperForConditionalGeneration(config).eval()
    missing, unexpected = model.model.load_state_dict(renamed, strict=False)
    assert not unexpected and not missing, (missing, unexpected)
    model.proj_out.weight = model.model.decoder.embed_tokens.weight
    model.half().save_pretrained(folder)
    return model.float()


def vocabulary_files(folder: Path) -> None:
    """Write the small vocabulary in both forms."""
    lines = [base64.b64encode(t) + b" " + str(i).encode() for i, t in enumerate(TOKENS)]
    (folder / "small.tiktoken").write_bytes(b"\n".join(lines) + b"\n")
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    shown = bytes_to_unicode()
    spell = lambda token: "".join(shown[b] for b in token)  # noqa: E731
    model = tokenizers.models.BPE(
        vocab={spell(t): i for i, t in enumerate(TOKENS)},
        merges=[(spell(a), spell(b)) for a, b in PAIRS],
    )
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.save(str(folder / "tokenizer.json"))


def main(converter: str) -> None:
    """Compute and store everything."""
    folder = Path(tempfile.mkdtemp())
    assets = Path(whisper.__file__).parent / "assets"
    vocabulary_files(folder)
    copied = folder / "whisper/assets"  # where the converter looks
    copied.mkdir(parents=True)
    shutil.copy(assets / "mel_filters.npz", copied)
    shutil.copy(folder / "small.tiktoken", copied / "gpt2.tiktoken")
    shutil.copy(folder / "small.tiktoken", assets)  # where openai-whisper looks

    model = original()
    state = {name: tensor.half() for name, tensor in model.state_dict().items()}
    torch.save({"dims": SIZES, "model_state_dict": state}, folder / "openai.pt")
    command = [sys.executable, converter, folder / "openai.pt", folder, folder]
    subprocess.run([*map(str, command)], check=True)
    theirs = hugging_face(dict(model.state_dict()), folder / "hf")

    time = np.arange(6400)
    sound = 50 * (120 * np.sin(time**1.5 / 900) * (time > 1500)).astype(np.int16)
    with torch.no_grad():
        whole = log_mel_spectrogram(recording().astype(np.float32) / 32768, padding=480_000)
        mel = log_mel_spectrogram(sound.astype(np.float32) / 32768)
        states = model.encoder(mel[None])
        tokens = torch.tensor([PROMPT])
        logits = model.decoder(tokens, states)[0]
        hf_states = theirs.model.encoder(mel[None]).last_hidden_state
        hf_logits = theirs(input_features=mel[None], decoder_input_ids=tokens).logits[0]
    encoding = get_encoding("small")
    tokenizer = Tokenizer(encoding, 99, language="fr", task="translate")
    fast = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = {
        "texts": TEXTS,
        "tiktoken": [encoding.encode(t, disallowed_special=()) for t in TEXTS],
        "tokenizer.json": [fast.encode(t).ids for t in TEXTS],
        "opening": list(tokenizer.sot_sequence),
        "timestamps": tokenizer.timestamp_begin,
        "unspoken": list(tokenizer.non_speech_tokens),
        "words": tokenizer.split_to_word_tokens(encoding.encode(TEXTS[1]))[0],
    }
    packages = (torch, transformers, whisper, tiktoken, tokenizers)
    versions = {each.__name__: str(each.__version__) for each in packages}
    files = ("openai.pt", "ggml-model.bin", "hf/model.safetensors", "small.tiktoken",
             "tokenizer.json")  # fmt: skip
    np.savez_compressed(
        Path(__file__).with_name("golden.npz"),
        **{name: np.frombuffer((folder / name).read_bytes(), np.uint8) for name in files},
        whole=whole.numpy().T[[*FRAMES]], versions=json.dumps(versions), text=json.dumps(text),
        sound=sound, prompt=PROMPT,
        mel=mel.numpy().T, states=states[0].numpy(), logits=logits[:, :SHOWN].numpy(),
        hf_states=hf_states[0].numpy(), hf_logits=hf_logits[:, :SHOWN].numpy(),
    )  # fmt: skip
    print(versions)


if __name__ == "__main__":
    main(sys.argv[1])
