// The source that owns the headers parsed once.
