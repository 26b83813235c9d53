/* answering_nvml.c: an NVML that answers with given bytes, in the order in which it is asked; then that it does not know. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const uint8_t* bytes;
static size_t left;

void answering_nvml_feed(const uint8_t* data, size_t count) {
    bytes = data;
    left = count;
}

/* A call takes its result from one byte, mostly success, and its answer from the next ones. */
static int answer(void* to, size_t count) {
    if (left < 1 + count) return 999;
    const int result = *bytes < 0xf0 ? 0 : *bytes - 0xf0;
    if (count > 0) memcpy(to, bytes + 1, count); /* a call without an answer has no place for one */
    bytes += 1 + count;
    left -= 1 + count;
    return result;
}

/* A bus id is mostly one of a few, so that links meet. */
struct PciInfo {
    char legacy_bus_id[16];
    unsigned numbers[5];
    char bus_id[32];
};
static int bus_id(struct PciInfo* info) {
    uint8_t which = 0;
    const int result = answer(&which, 1);
    if (result != 0) return result;
    if (which >= 0x80) return answer(info->bus_id, sizeof info->bus_id);
    memcpy(info->bus_id, "00000000:1A:00.0", 17);
    info->bus_id[10] = (char)('A' + (which & 3));
    return 0;
}

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return answer(count, 1); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    *device = (void*)(uintptr_t)(index + 1);
    return answer(NULL, 0);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* name, void** device) {
    *device = (void*)name;
    return answer(NULL, 0);
}
int nvmlDeviceGetPciInfo_v3(void* device, struct PciInfo* info) { return (void)device, bus_id(info); }
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
    return (void)device, (void)link, answer(active, 1);
}
int nvmlDeviceGetNvLinkCapability(void* device, unsigned link, int capability, unsigned* has) {
    return (void)device, (void)link, (void)capability, answer(has, 1);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, struct PciInfo* info) {
    return (void)device, (void)link, bus_id(info);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
    return (void)device, (void)link, answer(type, 1);
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
    int both[2] = {0, 0};
    const int result = answer(both, sizeof both);
    *major = both[0];
    *minor = both[1];
    return (void)device, result;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* generation) {
    return (void)device, answer(generation, sizeof *generation);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* lanes) { return (void)device, answer(lanes, sizeof *lanes); }
int nvmlDeviceGetGpuFabricInfoV(void* device, void* info) { return (void)device, answer((char*)info + 4, 32); }
struct FieldValue {
    unsigned field, scope;
    long long times_us[2];
    int type, result;
    unsigned long long value;
};
int nvmlDeviceGetFieldValues(void* device, int count, struct FieldValue* values) {
    for (int i = 0; i < count; ++i) {
        values[i].type = 0;
        values[i].result = answer(&values[i].type, 1);
        if (values[i].result == 0) values[i].result = answer(&values[i].value, sizeof values[i].value);
    }
    return (void)device, 0;
}
