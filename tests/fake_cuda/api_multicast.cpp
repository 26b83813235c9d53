// api_multicast.cpp: the fake driver: multicast objects. It refuses calls in a wrong order, where the real driver waits
// for the other devices.
#include <unistd.h>

#include "tests/fake_cuda/multicast.hpp"

using namespace weft::internal::fake;

namespace {

bool can(int device) { return world().setting.attribute(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0) != 0; }

Physical* object_of(CUmemGenericAllocationHandle handle) {
    const auto found = memory().handles.find(handle);
    return found == memory().handles.end() || found->second.physical->team == nullptr ? nullptr
                                                                                      : found->second.physical.get();
}

CUresult check_properties(const CUmulticastObjectProp* properties) {
    if (properties == nullptr || properties->flags != 0 || int(properties->numDevices) < world().setting.multicast ||
        properties->numDevices > unsigned(MulticastTeam::members_max))
        return CUDA_ERROR_INVALID_VALUE;
    return (properties->handleTypes & ~uint64_t(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMulticastGetGranularity(size_t* bytes, const CUmulticastObjectProp* properties,
                                   CUmulticastGranularity_flags) {
    FAKE_ENTER(MulticastGetGranularity);
    *bytes = vmm_page;
    return check_properties(properties);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
    FAKE_ENTER(MulticastCreate);
    if (const CUresult early = check_properties(properties); early != CUDA_SUCCESS) return early;
    if (properties->size == 0 || properties->size % vmm_page != 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(world().mutex);
    const auto object = make_physical(properties->size, multicast_device, properties->handleTypes, "fake_multicast");
    if (!object) return CUDA_ERROR_OUT_OF_MEMORY;
    object->team->mark = uint64_t(getpid()) << 32 | object->id;
    object->team->wanted = int(properties->numDevices);
    *handle = world().next_id++;
    memory().handles[*handle] = {object};
    return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
    FAKE_ENTER(MulticastAddDevice);
    if (const CUresult early = check_device(device); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    Physical* const object = object_of(handle);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!can(device)) return CUDA_ERROR_NOT_SUPPORTED;
    MulticastTeam& team = *object->team;
    const TeamLock team_lock(team);
    if (team.find(device) != nullptr || team.count == team.wanted) return CUDA_ERROR_INVALID_VALUE;
    team.members[team.count++] = {
        .device = device, .process = 0, .fd = -1, .id = 0, .memory_offset = 0, .offset = 0, .bytes = 0};
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle from,
                            size_t from_offset, size_t bytes, unsigned long long flags) {
    FAKE_ENTER(MulticastBindMem);
    std::lock_guard lock(world().mutex);
    Physical* const object = object_of(handle);
    const auto found = memory().handles.find(from);
    if (object == nullptr || found == memory().handles.end() || flags != 0 || bytes == 0 || bytes % vmm_page != 0 ||
        offset % vmm_page != 0 || from_offset % vmm_page != 0 || offset > object->bytes ||
        bytes > object->bytes - offset)
        return CUDA_ERROR_INVALID_VALUE;
    const Physical& physical = *found->second.physical;
    if (physical.team != nullptr || from_offset > physical.bytes || bytes > physical.bytes - from_offset ||
        (object->handle_types & ~physical.handle_types) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_complete(*object)) return CUDA_ERROR_ILLEGAL_STATE;
    MulticastTeam& team = *object->team;
    const TeamLock team_lock(team);
    MulticastTeam::Member* const member = team.find(physical.device);
    // One piece a device is enough here.
    if (member == nullptr || member->id != 0) return CUDA_ERROR_INVALID_VALUE;
    *member = {.device = physical.device,
               .process = getpid(),
               .fd = physical.fd,
               .id = physical.id,
               .memory_offset = from_offset,
               .offset = offset,
               .bytes = bytes};
    memory().bound[{team.mark, physical.device}] = found->second.physical;
    return CUDA_SUCCESS;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes) {
    FAKE_ENTER(MulticastUnbind);
    std::lock_guard lock(world().mutex);
    Physical* const object = object_of(handle);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    MulticastTeam& team = *object->team;
    const TeamLock team_lock(team);
    MulticastTeam::Member* const member = team.find(device);
    if (member == nullptr || member->id == 0 || member->offset != offset || member->bytes != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    member->id = 0;
    memory().bound.erase({team.mark, device});
    return CUDA_SUCCESS;
}

}  // extern "C"
