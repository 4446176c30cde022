"""From corpora to batches: synthesis, augmentation, distillation and batching."""
