"""One pipeline step per module: warehouse -> library -> warehouse."""
