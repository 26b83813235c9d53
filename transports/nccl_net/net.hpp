// net.hpp: a loaded network plugin of NCCL (ncclNet): one interface for all versions of the plugins' structs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "transports/nccl_net/abi.hpp"

namespace weft::internal::nccl_net {

// A NIC of the plugin.
struct Device {
    int index = 0;  // for the plugin
    std::string name;
    std::string pci_path;
    int64_t mbps = 0;
    int pointers = 0;               // bits of abi::host_pointer and others
    size_t message_bytes_most = 0;  // 0: any
    bool flush = false;             // device memory that it has received needs iflush, whatever the GPU says
    std::string why_not;            // not empty: Weft cannot use it, for this reason
};

// Immutable after load(). The functions are those of NCCL's interface; an answer other than abi::success is an error, and
// error_text() then has the words. A null comm or request means "call again". Calls of one comm are never concurrent.
class Net {
  public:
    virtual ~Net() = default;
    Net(const Net&) = delete;
    Net& operator=(const Net&) = delete;

    const std::string& name() const { return name_; }
    int version() const { return version_; }                         // of the plugin's struct
    const std::vector<Device>& devices() const { return devices_; }  // at least one is usable
    // Whether a usable device registers device memory.
    bool takes_device_memory() const;

    virtual abi::Answer listen(int device, void* handle, void** listening) const = 0;
    virtual abi::Answer connect(int device, void* handle, void** sending) const = 0;
    virtual abi::Answer accept_comm(void* listening, void** receiving) const = 0;
    virtual abi::Answer reg(void* comm, void* data, size_t bytes, int type, void** memory) const = 0;
    virtual abi::Answer reg_dma_buf(void* comm, void* data, size_t bytes, uint64_t offset, int fd,
                                    void** memory) const = 0;
    virtual abi::Answer dereg(void* comm, void* memory) const = 0;
    virtual abi::Answer isend(void* sending, void* data, size_t bytes, int tag, void* memory, void** request) const = 0;
    virtual abi::Answer irecv(void* receiving, void* data, size_t bytes, int tag, void* memory,
                              void** request) const = 0;
    virtual abi::Answer iflush(void* receiving, void* data, size_t bytes, void* memory, void** request) const = 0;
    // `bytes`: of the message, or those of the posted target.
    virtual abi::Answer test(void* request, bool* done, size_t* bytes) const = 0;
    virtual void close_send(void* sending) const = 0;
    virtual void close_recv(void* receiving) const = 0;
    virtual void close_listen(void* listening) const = 0;

  protected:
    Net() = default;
    std::string name_;
    int version_ = 0;
    std::vector<Device> devices_;
};

// Opens the first of the files that the loader can load, and calls its init. The library stays loaded. driver.missing:
// there is no file; transport.plugin: one is there and cannot be used. `only`: the name that the plugin must have, case ignored; empty: any.
Result<std::unique_ptr<Net>> load(const std::vector<std::string>& files, const std::string& only);

// The answer's name, and the plugin's last warning in this thread since the last call.
std::string error_text(abi::Answer answer);

}  // namespace weft::internal::nccl_net
