// plugin.hpp: transports outside the library, loaded as WEFT_TRANSPORT_PLUGIN says. Each is a struct of C functions
// (weft/transport.h), and here a Transport with its senders and receivers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.hpp"
#include "weft/transport.h"

namespace weft::internal::plugin {

// The plugins of this process, in the order of the option. Made once in each process and never destroyed, because threads
// of a plugin may run until the process ends.
struct Plugins {
    std::vector<std::unique_ptr<Transport>> transports;
    Status trouble;  // of the first plugin that cannot be used
};
const Plugins& plugins_of_process();

// A usable copy of a plugin's struct, with NULL beyond its size; transport.plugin if the struct breaks the interface.
// `from`: the plugin's file, for messages.
Result<weftTransportPlugin_t> checked_plugin(const weftTransportPlugin_t& plugin, const std::string& from);

// The row of a checked plugin whose init has succeeded. `functions` stays valid for ever.
std::unique_ptr<Transport> make_transport(const weftTransportPlugin_t& functions);

// The sentence of the plugin's last failed call in this thread.
std::string error_text(const weftTransportPlugin_t& functions, weftResult_t result);

// The two ends, which own the plugin's object.
std::unique_ptr<Sender> make_sender(const weftTransportPlugin_t& functions, const ConnectionOptions& options,
                                    void* sender);
std::unique_ptr<Receiver> make_receiver(const weftTransportPlugin_t& functions, const ConnectionOptions& options,
                                        void* receiver);
// The plugin's object of a registration that register_memory() has made; null for none.
void* handle_of(const RegisteredMemory* memory);

}  // namespace weft::internal::plugin
