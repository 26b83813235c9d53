#include "src/gpu/domain/multicast/multicast_post.hpp"

#include <utility>

#include "src/base/clock.hpp"

namespace weft::internal::cuda {

// As in memory_exports.cpp: a stopped process is asked again.
static constexpr int64_t object_patience_us = 200'000;

Result<MulticastObject> MulticastPost::create(const Context& context, int devices, size_t bytes) {
    auto object = MulticastObject::create(context, devices, bytes);
    if (!object) return object;
    auto descriptor = object->export_descriptor();
    if (!descriptor) return descriptor.take_status();
    auto fd_server = FdServer::of_process();
    if (!fd_server) return fd_server.take_status();
    fd_server_ = std::move(*fd_server);
    PassedFds content;
    content.descriptors.push_back(std::move(*descriptor));
    entry_ = {fd_server_->address(), fd_server_->post(std::move(content)), bytes};
    return object;
}

void MulticastPost::withdraw() {
    if (fd_server_) fd_server_->withdraw(entry_.fds_id);
    fd_server_ = nullptr;
}

Result<MulticastObject> fetch_multicast(const Context& context, int creator, const MulticastEntry& entry) {
    if (entry.bytes == 0) return fail(error::gpu_peer_access, "rank {} could not create a multicast object", creator);
    auto fetched = fetch_fds(entry.fd_server, entry.fds_id, now_us() + object_patience_us);
    if (!fetched) return fetched.take_status();
    if (fetched->descriptors.size() != 1)
        return fail(error::shm_descriptor, "its process sent something other than a multicast object");
    return MulticastObject::import(context, fetched->descriptors[0], entry.bytes);
}

}  // namespace weft::internal::cuda
