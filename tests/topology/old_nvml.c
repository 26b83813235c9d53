/* old_nvml.c: an NVML that begins and can nothing. */
int nvmlInit_v2(void);
int nvmlInit_v2(void) { return 0; }
