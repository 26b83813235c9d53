// loader.cpp: opens the plugins of WEFT_TRANSPORT_PLUGIN and checks their structs.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/library.hpp"
#include "transports/plugin/plugin.hpp"

namespace weft::internal::plugin {

namespace {

void log_line(int warning, const char* text) {
    if (!text) return;
    if (warning)
        WEFT_LOG(warn, net, "{}", text);
    else
        WEFT_LOG(info, net, "{}", text);
}

const weftTransportHost_t host = {sizeof(weftTransportHost_t), WEFT_TRANSPORT_ABI, log_line};

Status unusable(const std::string& from, std::string_view why) {
    return fail(error::transport_plugin, "the transport plugin {} cannot be used: {}", from, why);
}

struct Need {
    uint32_t capability;  // 0: always
    bool exists;
    const char* function;
};

// The first function that the plugin promises and lacks; null: none.
const char* missing_function(const weftTransportPlugin_t& its) {
    const Need needs[] = {
        {0, its.init != nullptr, "init"},
        {0, its.error != nullptr, "error"},
        {0, its.listen != nullptr, "listen"},
        {0, its.connect != nullptr, "connect"},
        {0, its.closeSender != nullptr, "closeSender"},
        {0, its.closeReceiver != nullptr, "closeReceiver"},
        {0, its.acquire != nullptr, "acquire"},
        {0, its.publish != nullptr, "publish"},
        {0, its.progress != nullptr, "progress"},
        {0, its.receive != nullptr, "receive"},
        {0, its.release != nullptr, "release"},
        {weftTransportPosts, its.post != nullptr, "post"},
        {weftTransportPosts, its.sent != nullptr, "sent"},
        {weftTransportSleeps, its.senderWakeups != nullptr, "senderWakeups"},
        {weftTransportSleeps, its.receiverWakeups != nullptr, "receiverWakeups"},
        {weftTransportOffers, its.offer != nullptr, "offer"},
        {weftTransportRegisters | weftTransportOneSided, its.registerMemory != nullptr, "registerMemory"},
        {weftTransportRegisters | weftTransportOneSided, its.deregisterMemory != nullptr, "deregisterMemory"},
        {weftTransportOneSided, its.memoryKey != nullptr, "memoryKey"},
        {weftTransportOneSided, its.attach != nullptr, "attach"},
        {weftTransportOneSided, its.detach != nullptr, "detach"},
        {weftTransportOneSided, its.put != nullptr, "put"},
        {weftTransportOneSided, its.get != nullptr, "get"},
        {weftTransportOneSided, its.transferred != nullptr, "transferred"},
    };
    for (const Need& need : needs)
        if (!need.exists && (need.capability == 0 || (its.capabilities & need.capability) != 0)) return need.function;
    return nullptr;
}

bool is_name(const char* name) {
    if (!name || !*name || strlen(name) > 32) return false;
    return std::all_of(name, name + strlen(name), [](char each) {
        return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
               each == '_' || each == '-';
    });
}

weftTransportPlugin_t copy_of(const weftTransportPlugin_t& plugin) {
    weftTransportPlugin_t copy{};
    memcpy(&copy, &plugin, std::min(plugin.size, sizeof copy));
    return copy;
}

// The library stays loaded: threads of the plugin may run until the process ends.
Result<std::unique_ptr<Transport>> load(const std::string& path) {
    auto library = DynamicLibrary::open(path);
    if (!library) return unusable(path, library.status().sentence());
    const auto* plugin = static_cast<const weftTransportPlugin_t*>(library->find(WEFT_TRANSPORT_SYMBOL));
    if (!plugin) return unusable(path, "it exports no symbol " WEFT_TRANSPORT_SYMBOL);
    auto checked = checked_plugin(*plugin, path);
    if (!checked) return checked.take_status();
    library->keep();
    if (const weftResult_t result = checked->init(&host); result != weftSuccess)
        return unusable(path, "its init failed: " + error_text(*checked, result));
    checked = checked_plugin(*plugin, path);  // init may have changed it
    if (!checked) return checked.take_status();
    WEFT_LOG(info, net, "the transport {} comes from {}", checked->name, path);
    return make_transport(*checked);
}

struct Known {
    std::once_flag once;
    Plugins plugins;
};

void load_all(Plugins& plugins) {
    for (const std::string_view path : NameList(options().transport_plugin).allowed) {
        auto transport = load(std::string(path));
        if (transport)
            for (const auto& other : plugins.transports)
                if (strcmp(other->name, (*transport)->name) == 0)
                    transport = unusable(std::string(path), "another plugin has its name, too");
        if (transport)
            plugins.transports.push_back(std::move(*transport));
        else if (plugins.trouble)
            plugins.trouble = transport.take_status();
    }
}

}  // namespace

Result<weftTransportPlugin_t> checked_plugin(const weftTransportPlugin_t& plugin, const std::string& from) {
    // The first two fields are the same in every version of the interface.
    if (plugin.abi != WEFT_TRANSPORT_ABI)
        return unusable(from, fmt::format("it was built for number {} of the interface, and this library has number {}",
                                          plugin.abi, WEFT_TRANSPORT_ABI));
    constexpr size_t least = offsetof(weftTransportPlugin_t, send);
    if (plugin.size < least)
        return unusable(from, fmt::format("its struct has {} bytes, and {} are needed", plugin.size, least));
    weftTransportPlugin_t copy = copy_of(plugin);
    if (!is_name(copy.name)) return unusable(from, "its name is empty, too long, or has other characters than a word");
    if (strcmp(copy.name, "shm") == 0 || strcmp(copy.name, "tcp") == 0)
        return unusable(from, fmt::format("{} is the name of one of Weft's transports", copy.name));
    if (const char* function = missing_function(copy))
        return unusable(from, fmt::format("it has no function {}", function));
    return copy;
}

const Plugins& plugins_of_process() {
    static PerProcess<Known> processes;
    Known& known = processes.get();
    std::call_once(known.once, [&] { load_all(known.plugins); });
    return known.plugins;
}

}  // namespace weft::internal::plugin
