/* A library that exports what is not Weft's: the exports test must object to it. */
int weftFine(void);
int weftFine(void) { return 0; }
int stranger(void);
int stranger(void) { return 1; }
