#include "src/train/server/host_copies.hpp"

#include "src/train/peers.hpp"
#include "src/train/server/server_message.hpp"

namespace weft::internal::train {

Status HostCopies::reserve(MemorySpace& space, const std::vector<Tensor>& parameters) {
    space_ = &space;
    parameters_ = on_host_ = parameters;
    if (!space.on_device()) return ok();
    size_t bytes = 0;
    for (const Tensor& tensor : parameters) bytes += bytes_in_message(tensor);
    auto memory = FlatBuffer::allocate_on_host(space, bytes);
    if (!memory) return memory.take_status();
    staging_ = std::move(*memory);
    bytes = 0;
    for (Tensor& tensor : on_host_) {
        tensor.data = staging_.data() + bytes;
        bytes += bytes_in_message(tensor);
    }
    return ok();
}

Status HostCopies::broadcast(const Peers& peers) {
    for (size_t i = 0; space_->on_device() && peers.rank() == 0 && i < parameters_.size(); ++i)
        WEFT_TRY(space_->copy(on_host_[i].data, parameters_[i].data, element_bytes(parameters_[i])));
    WEFT_TRY(space_->synchronize());
    // By host memory, because other ranks may have no device.
    WEFT_TRY(broadcast_values(peers, *host_space(), on_host_, 0));
    for (size_t i = 0; i < parameters_.size(); ++i) WEFT_TRY(write(int(i)));
    return space_->synchronize();
}

Status HostCopies::write(int parameter) {
    if (!space_->on_device()) return ok();
    const Tensor& tensor = parameters_[size_t(parameter)];
    return space_->copy(tensor.data, on_host_[size_t(parameter)].data, element_bytes(tensor));
}

}  // namespace weft::internal::train
