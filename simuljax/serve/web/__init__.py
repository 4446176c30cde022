"""The live server: captions in a browser, streaming sockets, many speakers on one device."""
