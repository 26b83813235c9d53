// nccl_net.hpp: connections over a network plugin of NCCL (libnccl-net.so), which is found as NCCL finds it.
#pragma once
#include <memory>

#include "transports/transport.hpp"

namespace weft::internal::nccl_net {

// The plugin of this process. Made once in each process and never destroyed, because threads of a plugin may run until
// the process ends.
struct Plugin {
    std::unique_ptr<Transport> transport;  // null: there is none
    Status trouble;                        // why the plugin of WEFT_NCCL_NET_PLUGIN cannot be used
};
const Plugin& plugin_of_process();

}  // namespace weft::internal::nccl_net
