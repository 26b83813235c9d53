#include "transports/nccl_net/nccl_net.hpp"

#include <mutex>

#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "transports/nccl_net/connection.hpp"
#include "transports/nccl_net/device_trials.hpp"

namespace weft::internal::nccl_net {

namespace {

class NetTransport final : public Transport {
  public:
    explicit NetTransport(std::unique_ptr<Net> net)
        : Transport("nccl_net", capabilities(Capability::posts, Capability::registers, Capability::given_slots,
                                             Capability::remote) |
                                    (net->takes_device_memory() ? capabilities(Capability::device) : 0)),
          net_(std::move(net)),
          trials_(*net_) {}

    // FNV-1a. Plugins of one name and version reach each other.
    std::vector<Reached> networks() const override {
        uint32_t hash = 2166136261u ^ uint32_t(net_->version());
        for (const char each : net_->name()) hash = (hash ^ uint8_t(each)) * 16777619u;
        return {Reached{hash | 1u, {}}};
    }
    std::vector<Rail> rails() const override;
    std::vector<std::string> nics(const std::string& gpu, int rank) const override;
    std::string can_connect(const ConnectionOptions& options) const override {
        return options.identity == nullptr ? "the communicator has no identity to prove on a network" : "";
    }
    Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) const override {
        return make_receiver(*net_, options, address);
    }
    Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) const override;
    Result<std::unique_ptr<RegisteredMemory>> register_memory(const MemoryRange& range) const override {
        if (range.kind == RangeKind::device && !can(Capability::device)) return Transport::register_memory(range);
        return register_range(*net_, trials_, range);
    }

  private:
    std::unique_ptr<Net> net_;
    mutable DeviceTrials trials_;
};

std::vector<Rail> NetTransport::rails() const {
    std::vector<Rail> rails;
    for (const Device& device : net_->devices())
        rails.push_back({device.name,
                         fmt::format("of {}, version {}{}{}", net_->name(), net_->version(),
                                     device.pci_path.empty() ? "" : ", ", device.pci_path),
                         device.mbps, device.why_not});
    return rails;
}

// Connections spread over all devices that can be used.
std::vector<std::string> NetTransport::nics(const std::string&, int) const {
    std::vector<std::string> places;
    for (const Device& device : net_->devices())
        if (device.why_not.empty() && !device.pci_path.empty())
            places.push_back(device.pci_path.substr(device.pci_path.rfind('/') + 1));
    return places;
}

Result<std::unique_ptr<Sender>> NetTransport::connect(const ConnectionOptions& options, const Blob& address) const {
    const Address peer = Address::of(address);
    if (peer.depth != options.depth || peer.slot_bytes != options.slot_bytes)
        return fail(error::mismatch_algorithm,
                    "rank {} listens to rank {} with {} slots of {} bytes, but rank {} expects {} of {} over {}: the "
                    "ranks chose differently",
                    options.peer, options.self, peer.depth, peer.slot_bytes, options.self, options.depth,
                    options.slot_bytes, name)
            .about({.rank = options.peer, .peer = options.self});
    return make_sender(*net_, options, peer);
}

// NCCL takes the first plugin that works. A plugin that only NCCL's variable names, or that is just installed, may be meant
// for NCCL alone, so it is no error if it does not work.
void find_plugin(Plugin& plugin) {
    const Options& all = options();
    const std::string& wanted = all.nccl_net_plugin;
    const Origin origin = all.origin(OptionIndex::nccl_net_plugin);
    if (wanted == "none") return;
    std::vector<std::vector<std::string>> candidates;
    for (const std::string_view name : NameList(wanted).allowed)
        candidates.push_back({std::string(name), fmt::format("libnccl-net-{}.so", name)});
    if (candidates.empty()) candidates = {{"libnccl-net.so"}};
    Status trouble;
    for (const auto& files : candidates) {
        auto net = load(files, all.nccl_net);
        if (net) {
            WEFT_LOG(info, net, "the transport nccl_net uses the network plugin {} of {}, version {}, with {} devices",
                     (*net)->name(), files[0], (*net)->version(), (*net)->devices().size());
            plugin.transport = std::make_unique<NetTransport>(std::move(*net));
            return;
        }
        if (trouble && !(wanted.empty() && net.status().id() == error::driver_missing))
            trouble = fail(error::transport_plugin, "{}{}",
                           net.status().id() == error::driver_missing
                               ? fmt::format("the NCCL network plugin {} cannot be used: ", files[0])
                               : "",
                           net.status().sentence());
    }
    if (trouble) return;
    if (origin == Origin::environment)
        plugin.trouble = std::move(trouble);
    else if (origin == Origin::alias)
        WEFT_LOG(warn, net, "{}; Weft goes without it", trouble.sentence());
    else
        WEFT_LOG(info, net, "{}; Weft goes without it", trouble.sentence());
}

struct Known {
    std::once_flag once;
    Plugin plugin;
};

}  // namespace

const Plugin& plugin_of_process() {
    static PerProcess<Known> processes;
    Known& known = processes.get();
    std::call_once(known.once, [&] { find_plugin(known.plugin); });
    return known.plugin;
}

}  // namespace weft::internal::nccl_net
