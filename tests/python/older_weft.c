/* older_weft.c: a library under libweft's name that is too old for the package. */
int weftGetVersion(int* version);

__attribute__((visibility("default"))) int weftGetVersion(int* version) {
    *version = 1; /* 0.0.1 */
    return 0;
}
