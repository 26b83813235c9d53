/* A library that exports weft* only, but needs another library: the exports test must object to it. */
int stranger(void);
int weftNeedy(void);
int weftNeedy(void) { return stranger(); }
