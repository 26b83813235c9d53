// context.hpp: RDMA devices that a transport opens: their limits, ports, GIDs, partition keys and events.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/drivers/verbs/functions.hpp"
#include "src/drivers/verbs/gid.hpp"

namespace weft::internal::verbs {

// Something that happened to the device, a port or a queue. A value: the library's event is acknowledged already.
struct Event {
    int type = 0;                       // event::port_error, ...
    int port = 0;                       // of an event of a port
    uint32_t pair = 0;                  // the queue pair's number, of an event of one
    const abi::Queue* queue = nullptr;  // the completion queue, of an event of one; it may be gone
    std::string device;                 // "mlx5_0"
    std::string text() const;
};

// Read when the device was opened. Immutable.
struct DeviceFacts {
    std::string name;
    std::string folder;  // in /sys
    int transport = transport_infiniband;
    int ports = 0;
    abi::DeviceLimits limits{};
};

// An open device. Owns it: domains, queues and pairs on it must be gone before. Thread-safe, except next_event(), which
// is thread-bound.
class Context {
  public:
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context();

    const DeviceFacts& facts() const { return facts_; }
    // verbs.device: the port does not answer.
    Result<abi::PortAttributes> port(int number) const;
    // The speed of all its lanes together; -1: unknown.
    int mbps(const abi::PortAttributes& attributes, int port) const;
    // The port's table without holes. Reads what the kernel knows now: a GID may change when a link comes back.
    Result<std::vector<PortGid>> gids(int port) const;
    // The port's partition keys by index; 0: none.
    std::vector<uint16_t> pkeys(int port) const;
    // The place of a partition key in the port's table. Membership (bit 15) is not compared.
    Result<int> pkey_index(int port, uint16_t value) const;
    // The first key with full membership, or 0.
    int default_pkey_index(int port) const;

    // Readable when an event waits. Does not block.
    int event_fd() const { return context_->async_fd; }
    // Takes an event from the library and acknowledges it, without which the object concerned could not be destroyed.
    std::optional<Event> next_event();

    // For the other classes of this folder.
    const abi::Functions& functions() const { return *functions_; }
    abi::Context* get() const { return context_; }

  private:
    friend class DeviceList;
    Context(Functions functions, abi::Context* context, DeviceFacts facts)
        : functions_(std::move(functions)), context_(context), facts_(std::move(facts)) {}
    std::vector<PortGid> gids_of_table(int port, int room) const;
    std::vector<PortGid> gids_of_files(int port, int room) const;

    const Functions functions_;
    abi::Context* const context_;
    const DeviceFacts facts_;
};

// The devices of this process. Thread-bound.
class DeviceList {
  public:
    // verbs.call: the kernel has no RDMA. No device is no failure.
    static Result<DeviceList> read(Functions functions);
    DeviceList(DeviceList&& other) noexcept;
    DeviceList& operator=(DeviceList&&) = delete;
    ~DeviceList();

    std::vector<std::string> names() const;
    // verbs.device: no such device, or it cannot be opened.
    Result<std::unique_ptr<Context>> open(const std::string& name) const;

  private:
    DeviceList(Functions functions, abi::DeviceRow** rows, int count)
        : functions_(std::move(functions)), rows_(rows), count_(count) {}

    Functions functions_;
    abi::DeviceRow** rows_;
    int count_;
};

}  // namespace weft::internal::verbs
