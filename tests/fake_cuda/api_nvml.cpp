// api_nvml.cpp: the fake driver is also NVIDIA's management library, of the same devices.
#include <cstdio>
#include <cstring>

#include "tests/fake_cuda/world.hpp"

using namespace weft::internal::fake;

namespace {

constexpr int success = 0, invalid_argument = 2, not_supported = 3, not_found = 6, gpu_is_lost = 15;

// The handle of device n is n + 1.
int number_of(void* device) { return int(reinterpret_cast<intptr_t>(device)) - 1; }

const NvLink* find_link(int device, unsigned link) {
    for (const NvLink& each : world().setting.links)
        if (each.device == device && each.link == int(link)) return &each;
    return nullptr;
}

struct PciInfo {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_ids, subsystem_ids;
    char bus_id[32];
};

struct FieldValue {
    unsigned field, scope;
    long long timestamp_us, latency_us;
    int type;
    int result;
    unsigned long long value;
};

struct FabricInfo {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

}  // namespace

extern "C" {

int nvmlInit_v2(void) { return enter("nvmlInit_v2", true); }

int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
    std::snprintf(text, bytes, "%d.00.01", world().setting.version >= 13000 ? 580 : 525);
    return success;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
    unsigned domain = 0, bus = 0;
    if (std::sscanf(bus_id, "%x:%x:", &domain, &bus) != 2) return invalid_argument;
    const int number = int(bus) - 0x1a;
    if (check_device(number) != CUDA_SUCCESS) return not_found;
    *device = reinterpret_cast<void*>(intptr_t(number + 1));
    return success;
}

int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
    if (link >= 18) return invalid_argument;
    const NvLink* found = find_link(number_of(device), link);
    // A GPU that has no link of that number says so, one whose link is down says that it is not active.
    if (found == nullptr) return not_supported;
    *active = found->remote != -2;
    return success;
}

int nvmlDeviceGetNvLinkCapability(void* device, unsigned link, int capability, unsigned* has) {
    if (find_link(number_of(device), link) == nullptr) return not_supported;
    *has = capability == 0;
    return success;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
    const NvLink* found = find_link(number_of(device), link);
    if (found == nullptr) return not_supported;
    std::memset(info, 0, sizeof *info);
    info->bus = found->remote < 0 ? 0xc0 + link : unsigned(0x1a + found->remote);
    if (found->remote == -3)
        std::snprintf(info->bus_id, sizeof info->bus_id, "FFFFFFFF:FFFF:FF");
    else
        std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return success;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
    const NvLink* found = find_link(number_of(device), link);
    if (found == nullptr) return not_supported;
    *type = found->remote < 0 ? 2 : 0;
    return success;
}

int nvmlDeviceGetP2PStatus(void* from, void* to, int index, int* status) {
    const int one = number_of(from), other = number_of(to);
    const Setting& setting = world().setting;
    bool linked = false;
    for (const NvLink& each : setting.links)
        linked |= each.device == one && (each.remote == other || each.remote == -1);
    const bool can = index == 2 ? linked : setting.peer(one, other) != 0;
    *status = can ? 0 : 5;
    return success;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    if (const int early = enter("nvmlDeviceGetCount_v2", true); early != success) return early;
    *count = unsigned(world().setting.gpus);
    return success;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    if (const int early = enter("nvmlDeviceGetHandleByIndex_v2", true); early != success) return early;
    if (check_device(int(index)) != CUDA_SUCCESS) return invalid_argument;
    if (world().setting.lost.count(int(index)) != 0) return gpu_is_lost;
    *device = reinterpret_cast<void*>(intptr_t(index) + 1);
    return success;
}

int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
    std::memset(info, 0, sizeof *info);
    info->bus = unsigned(0x1a + number_of(device));
    std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return success;
}

int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
    if (const int early = enter("nvmlDeviceGetCudaComputeCapability", true); early != success) return early;
    *major = world().setting.sm / 10;
    *minor = world().setting.sm % 10;
    return success;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
    *generation = 5;
    return success;
}

int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* lanes) {
    *lanes = 16;
    return success;
}

int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
    const auto found = world().setting.c2c.find(number_of(device));
    for (FieldValue* each = values; each != values + count; ++each) {
        each->result = not_supported;
        if (found == world().setting.c2c.end()) continue;
        each->result = success;
        each->type = 1;
        each->value = each->field == 170   ? unsigned(found->second.first)
                      : each->field == 171 ? 1u
                                           : unsigned(found->second.second);
    }
    return success;
}

int nvmlDeviceGetGpuFabricInfoV(void* device, FabricInfo* info) {
    if (info->version != (sizeof *info | 2u << 24)) return invalid_argument;
    const unsigned* const clique = world().setting.clique_of(number_of(device));
    std::memset(info->cluster, 0, sizeof info->cluster);
    info->status = success;
    info->clique = 0;
    info->state = 1;  // not supported
    info->health = 0;
    if (clique == nullptr) return success;
    std::memset(info->cluster, 0xab, sizeof info->cluster);
    info->clique = *clique;
    info->state = 3;
    return success;
}

}  // extern "C"
