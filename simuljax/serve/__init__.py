"""The host side of a trained model: load, translate, stream, many sessions on one device."""
