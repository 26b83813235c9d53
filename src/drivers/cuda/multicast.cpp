#include "src/drivers/cuda/multicast.hpp"

#include <utility>

namespace weft::internal::cuda {

namespace {

CUmulticastObjectProp object_properties(int devices, size_t bytes) {
    CUmulticastObjectProp properties{};
    properties.numDevices = unsigned(devices);
    properties.size = bytes;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
}

}  // namespace

bool MulticastObject::has_functions(const Driver& driver) {
    return driver.MulticastCreate && driver.MulticastAddDevice && driver.MulticastBindMem && driver.MulticastUnbind &&
           driver.MulticastGetGranularity;
}

Result<size_t> MulticastObject::size_for(const Driver& driver, int devices, size_t bytes) {
    WEFT_TRY(driver.need(has_functions(driver), "cuMulticastCreate"));
    const CUmulticastObjectProp properties = object_properties(devices, bytes);
    size_t granularity = 0;
    WEFT_TRY(driver.check(driver.MulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM),
                          "query the granularity of multicast objects for {} devices", devices));
    return (bytes + granularity - 1) / granularity * granularity;
}

Result<MulticastObject> MulticastObject::create(const Context& context, int devices, size_t bytes) {
    const Driver& driver = context.driver();
    WEFT_TRY(driver.need(has_functions(driver), "cuMulticastCreate"));
    const CUmulticastObjectProp properties = object_properties(devices, bytes);
    MulticastObject object;
    const CUresult result = driver.MulticastCreate(&object.handle_, &properties);
    WEFT_TRY(driver.check(result, "create a multicast object of {} bytes for {} devices{}", bytes, devices,
                          result == CUDA_ERROR_SYSTEM_NOT_READY ? " (does the fabric manager run?)" : ""));
    object.driver_ = &driver;
    object.context_ = context.handle();
    object.device_ = context.device();
    object.bytes_ = bytes;
    return object;
}

Result<MulticastObject> MulticastObject::import(const Context& context, const UnsharedFd& descriptor, size_t bytes) {
    const Driver& driver = context.driver();
    WEFT_TRY(driver.need(has_functions(driver), "cuMulticastCreate"));
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    MulticastObject object;
    void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.number()));
    WEFT_TRY(driver.check(
        driver.MemImportFromShareableHandle(&object.handle_, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "import another rank's multicast object"));
    object.driver_ = &driver;
    object.context_ = context.handle();
    object.device_ = context.device();
    object.bytes_ = bytes;
    return object;
}

Result<UnsharedFd> MulticastObject::export_descriptor() const {
    return export_handle(*driver_, handle_, "export the multicast object as a file descriptor");
}

Status MulticastObject::add_device() {
    return driver_->check(driver_->MulticastAddDevice(handle_, device_), "add device {} to the multicast object",
                          device_);
}

Status MulticastObject::bind(const VmmMemory& memory) { return bind_handle(memory.handle()); }

Status MulticastObject::bind_piece(CUdeviceptr address) {
    WEFT_TRY(driver_->check(driver_->MemRetainAllocationHandle(&piece_, reinterpret_cast<void*>(address)),
                            "find the piece of memory that is mapped at {:#x}", address));
    return bind_handle(piece_);
}

Status MulticastObject::bind_handle(CUmemGenericAllocationHandle memory) {
    WEFT_TRY(driver_->check(driver_->MulticastBindMem(handle_, 0, memory, 0, bytes_, 0),
                            "bind {} bytes of device {} to the multicast object", bytes_, device_));
    bound_ = true;
    return ok();
}

Status MulticastObject::map() {
    ContextScope scope(*driver_, context_);
    WEFT_TRY(scope.take_status());
    WEFT_TRY(driver_->check(driver_->MemAddressReserve(&address_, bytes_, 0, 0, 0),
                            "reserve {} bytes of addresses for the multicast object", bytes_));
    WEFT_TRY(driver_->check(driver_->MemMap(address_, bytes_, 0, handle_, 0), "map {} bytes of the multicast object",
                            bytes_));
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver_->check(driver_->MemSetAccess(address_, bytes_, &access, 1),
                          "open the multicast object for device {}", device_);
}

MulticastObject& MulticastObject::operator=(MulticastObject&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    std::swap(bytes_, other.bytes_);
    std::swap(piece_, other.piece_);
    std::swap(address_, other.address_);
    std::swap(bound_, other.bound_);
    std::swap(mapped_, other.mapped_);
    return *this;
}

MulticastObject::~MulticastObject() {
    if (driver_ == nullptr || !driver_->here()) return;
    ContextScope scope(*driver_, context_);
    if (bound_) driver_->MulticastUnbind(handle_, device_, 0, bytes_);
    if (mapped_) driver_->MemUnmap(address_, bytes_);
    if (address_ != 0) driver_->MemAddressFree(address_, bytes_);
    driver_->MemRelease(handle_);
    if (piece_ != 0) driver_->MemRelease(piece_);
}

}  // namespace weft::internal::cuda
