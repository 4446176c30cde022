"""The page in a real Chromium: captions, files to keep, reconnection, two tabs."""

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simuljax.audio import read_audio
from simuljax.eval.logs import parse_record
from simuljax.serve.bundled import CLIP, DEFAULT
from simuljax.serve.outputs import subtitle_file, subtitles
from simuljax.serve.session import Word
from simuljax.serve.web.app import PAGE_HEADERS
from simuljax.text.sentences import ends_sentence
from tests.serve.web.browser import browsing, needs_browser
from tests.serve.web.servers import cut_all, running, sound
from tests.text.test_sentences import ENDS, NO_ENDS

pytestmark = [pytest.mark.slow, needs_browser]
WORDS = "[...document.querySelectorAll('.word')].map(word => word.textContent.trim())"
IDLE = "document.getElementById('state').textContent === 'idle'"
# Keeps the samples that the page wants to send, and counts its connections.
TAP = """
window.captured = []; window.connections = 0;
const push = Live.prototype.push, connect = Live.prototype.connect;
Live.prototype.push = function (samples) {
  captured.push(...samples); return push.call(this, samples);
};
Live.prototype.connect = function () { connections += 1; return connect.call(this); };
"""
KEY = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "microphone.wav"
    soundfile.write(path, sound(1, 8.0, 48_000), 48_000)
    with browsing(path) as found:
        yield found


@pytest.fixture
def page(live, browser):
    tab = browser()
    tab.go(live.url("/", "http"))
    tab.run(TAP)
    return tab


def texts(live, samples) -> list[str]:
    return [text for text, _ in live.alone([np.array(samples, np.int16)])]


def test_a_file_gives_the_words_of_a_stream_and_its_files(live, page, tmp_path):
    samples = sound(70, 4.0)
    soundfile.write(tmp_path / "talk.wav", samples, 16_000)
    page.open_file(tmp_path / "talk.wav")
    page.wait(f"{WORDS}.length > 0 && {IDLE}")
    sent = page.run("captured")
    assert np.abs(np.array(sent) - samples).max() <= 1  # browsers differ in how they scale
    record = parse_record(json.loads(page.run("asLog()")))
    assert page.run(WORDS) == texts(live, sent) == record.prediction.split()
    assert record.source_length == 4000 and record.source == ["talk.wav"]
    words = [
        Word(text=text, delay_ms=delay, elapsed_ms=delay)
        for text, delay in zip(record.prediction.split(), record.delays, strict=True)
    ]
    assert min(record.delays) < 2000 and all(np.diff(record.delays) >= 0)
    assert page.run("asSrt()") == subtitle_file(words)
    for text in ("so it goes", "我 用 iPhone 打 “ 好”", "ประ เทศ", "한국 사람", "好 " * 70):
        given = [Word(text=each, delay_ms=0, elapsed_ms=0) for each in text.split()]
        shown = [{"text": each.text, "delay": 0} for each in given]
        lines = page.run(f"subtitles({json.dumps(shown)}).map(s => s.text)")
        assert lines == [text for *_, text in subtitles(given)]
    for word in ENDS + NO_ENDS:
        assert page.run(f"endsSentence({json.dumps(word)})") == ends_sentence(word), word
    assert page.run("asVtt()").startswith("WEBVTT\n\n00:00:0")
    assert "ms" in page.text("latency") and " s" in page.text("lag")
    assert live.empty()


def test_a_token_is_asked_for_and_the_sample_of_a_bundled_model_is_offered(live, page, browser):
    """11 s of speech; a model without a sample has no button."""
    clip = Path(__file__).parents[3] / "models" / DEFAULT / CLIP
    assert page.run("document.getElementById('clip').hidden")
    with running(live.translator, token="open sesame", clip=clip) as bundled:
        tab = browser()
        tab.call("Page.navigate", url=bundled.url("/", "http"))
        tab.wait("!!document.querySelector('#alert input')")
        assert "token" in tab.text("alert")
        tab.go(bundled.url("/#token=open%20sesame", "http"))
        assert "sesame" not in tab.run("location.href")
        tab.run(TAP)
        tab.wait("!document.getElementById('clip').hidden")
        tab.click("clip")
        tab.wait(f"{WORDS}.length > 0 && {IDLE}")
        sent = tab.run("captured")
        assert np.abs(np.array(sent) - read_audio(clip).samples).max() <= 1
        assert tab.run(WORDS) == texts(live, sent)


def test_the_microphone_gives_the_words_of_what_was_sent(live, page):
    page.click("mic")
    page.wait(f"{WORDS}.length > 5")
    assert page.run("document.getElementById('level').value") > -60
    page.click("mic")
    page.wait(IDLE)
    sent = page.run("captured")
    assert page.run(WORDS) == texts(live, sent)
    assert len(sent) > 16_000 and np.std(sent) > 100
    assert live.empty()


def test_a_lost_connection_loses_no_word_and_repeats_none(live, page):
    page.click("mic")
    for lost in (1, 2):
        page.wait(f"{WORDS}.length > {4 * lost}")
        cut_all(live)
        page.wait(f"connections > {lost}")
    page.wait(f"{WORDS}.length > 12 && document.getElementById('alert').hidden")
    page.click("mic")
    page.wait(IDLE)
    assert page.run(WORDS) == texts(live, page.run("captured"))
    assert live.empty()


def test_a_server_that_was_restarted_goes_on_with_the_sound_it_has_not_heard(live, browser):
    """Its session is gone: what was acknowledged is not sent again, so no word comes twice."""
    tab = browser()
    with running(live.translator, drain=0.0) as first:
        tab.go(first.url("/", "http"))
        tab.run(TAP)
        tab.click("mic")
        tab.wait(f"{WORDS}.length > 4")
        first.server.handle_exit(signal.SIGTERM, None)
        tab.wait("document.getElementById('state').textContent === 'reconnecting'")
    early = tab.run(WORDS)
    with running(live.translator, port=first.port):
        tab.wait(f"{WORDS}.length > {len(early) + 4} && document.getElementById('alert').hidden")
        origin = tab.run("live.origin")
        tab.click("mic")
        tab.wait(IDLE)
    captured = tab.run("captured")
    assert 0 < origin < len(captured)
    words = tab.run(WORDS)
    later = texts(live, captured[origin:])
    assert words[len(words) - len(later) :] == later
    before = words[: len(words) - len(later)]
    assert before == texts(live, captured[:origin])  # the first server ended its speech


def test_keys_and_large_captions(page):
    """The page asks nothing of others, and all of its controls have names."""
    page.run(KEY % "l")
    assert page.run("document.body.classList.contains('large')")
    page.run(KEY % "Escape")
    assert not page.run("document.body.classList.contains('large')")
    unnamed = """[...document.querySelectorAll('button, input, select, canvas, meter')].filter(e =>
        !(e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label')))"""
    assert page.run(f"{unnamed}.length") == 0
    html = page.run("document.documentElement.outerHTML")
    assert not re.findall(r"(?:src|href)=[\"'](?!data:)", html)
    assert "default-src 'none'" in PAGE_HEADERS["content-security-policy"]
