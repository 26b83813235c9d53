// multicast_post.hpp: how the ranks of a host come to one multicast object: the first rank creates it and posts its
// descriptor, and the others fetch that.
#pragma once
#include <memory>
#include <utility>

#include "src/drivers/cuda/multicast.hpp"
#include "src/gpu/domain/multicast/multicast_entry.hpp"
#include "src/net/fd_passing.hpp"

namespace weft::internal::cuda {

// The first rank's descriptor while it is posted. Thread-bound.
class MulticastPost {
  public:
    MulticastPost() = default;
    MulticastPost(MulticastPost&& other) noexcept { *this = std::move(other); }
    MulticastPost& operator=(MulticastPost&& other) noexcept {
        std::swap(fd_server_, other.fd_server_);
        std::swap(entry_, other.entry_);
        return *this;
    }
    ~MulticastPost() { withdraw(); }
    // Creates an object for `devices` devices and posts its descriptor. bytes: of MulticastObject::size_for().
    Result<MulticastObject> create(const Context& context, int devices, size_t bytes);
    // The entry that the others fetch the object by; 0 bytes: nothing was created.
    const MulticastEntry& entry() const { return entry_; }
    // Closes the posted descriptor.
    void withdraw();

  private:
    std::shared_ptr<FdServer> fd_server_;  // null: nothing is posted
    MulticastEntry entry_;
};

// The object that rank `creator` has created, in this process or another one. weftTimeout: its process does not answer.
Result<MulticastObject> fetch_multicast(const Context& context, int creator, const MulticastEntry& entry);

}  // namespace weft::internal::cuda
