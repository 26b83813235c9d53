// verbs.cpp: the row of verbs: connections between ranks whose hosts have ports on one RDMA network.
#include "transports/verbs/verbs.hpp"

#include "transports/verbs/receiver.hpp"
#include "transports/verbs/sender.hpp"

namespace weft::internal {

namespace verbs {

namespace {

class VerbsTransport final : public Transport {
  public:
    VerbsTransport()
        : Transport("verbs", capabilities(Capability::posts, Capability::offers, Capability::registers,
                                          Capability::device, Capability::given_slots, Capability::one_sided,
                                          Capability::sleeps, Capability::remote)) {}
    std::string available() const override {
        const auto ports = used_ports();
        return ports ? std::string() : ports.status().sentence();
    }
    std::vector<Reached> networks() const override;
    // A link with one rail repeats for longest.
    int64_t repeat_us() const override { return settings().path_with(1).repeat_us(); }
    std::vector<Rail> rails() const override {
        const auto devices = Devices::of_process();
        return devices ? (*devices)->rails(settings()) : std::vector<Rail>();
    }
    std::vector<std::string> nics(const std::string& gpu, int rank) const override;
    std::string can_connect(const ConnectionOptions& options) const override {
        // Ranks that have agreed on it had ports when they met. If these are gone, a connection is an error.
        return options.identity == nullptr ? "the communicator has no identity to prove on a network" : "";
    }
    Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) const override;
    Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) const override;
    Result<std::unique_ptr<RegisteredMemory>> register_memory(const MemoryRange& range) const override;

  private:
    static Result<std::vector<Port>> used_ports() {
        const auto devices = Devices::of_process();
        if (!devices) return devices.status().copy();
        return (*devices)->ports(settings());
    }
};

// One of each subnet: two hosts agree if they have active ports on one of them. Rows that are not available have a network,
// too: 0 would say that every rank has this transport.
std::vector<Reached> VerbsTransport::networks() const {
    const auto ports = used_ports();
    if (!ports) return {Reached{1, {}}};
    const Devices& devices = **Devices::of_process();
    std::vector<Reached> networks;
    for (const std::vector<Port>& layer : by_layer(devices, *ports))
        for (const uint32_t network : networks_of(devices, layer))
            networks.push_back({network, speed_of(devices, layer, settings().rails)});
    return networks;
}

std::vector<std::string> VerbsTransport::nics(const std::string& gpu, int rank) const {
    std::vector<std::string> names;
    const auto devices = Devices::of_process();
    if (!devices) return names;
    const auto ports = ports_of_rank(**devices, settings(), gpu, rank);
    if (!ports) return names;
    const std::vector<Port> preferred = by_layer(**devices, *ports)[0];
    for (const Port& port : preferred)
        if (names.size() < size_t(settings().rails)) names.push_back(port.name);
    return names;
}

Result<std::unique_ptr<Receiver>> VerbsTransport::listen(const ConnectionOptions& options, Blob& address) const {
    if (options.depth > Immediate::depth_most)
        return fail(error::usage_limit,
                    "rank {} cannot listen to rank {} over verbs with {} slots, because a connection has {} at most: "
                    "lower `fifo` in the algorithm's file, exclude it by WEFT_ALGO, or set WEFT_TRANSPORTS=shm,tcp",
                    options.self, options.peer, options.depth, int(Immediate::depth_most));
    if (options.depth < 1 || options.identity == nullptr)
        return fail(error::internal_state, "rank {} cannot listen to rank {} over verbs with {} slots", options.self,
                    options.peer, options.depth);
    auto endpoint = Endpoint::of(options);
    if (!endpoint) return endpoint.take_status();
    auto incoming = std::make_shared<Incoming>();
    incoming->shape = Shape::of(options);
    incoming->arrivals.resize(size_t(options.depth));
    incoming->offers = OpenOffers(size_t(options.depth));
    // The sender reads there what confirms its puts.
    auto memory = SlotMemory::make((*endpoint)->devices(), incoming->shape.stride() * size_t(options.depth),
                                   access::local_write | access::remote_write | access::remote_read);
    if (!memory) return memory.take_status();
    incoming->memory = std::move(*memory);
    address = (*endpoint)->listen(options, incoming).blob();
    return std::unique_ptr<Receiver>(new VerbsReceiver(std::move(*endpoint), std::move(incoming)));
}

Result<std::unique_ptr<Sender>> VerbsTransport::connect(const ConnectionOptions& options, const Blob& address) const {
    const auto listen_address = ListenAddress::of(address);
    if (!listen_address || listen_address->depth != options.depth || listen_address->slot_bytes != options.slot_bytes)
        return fail(
                   error::mismatch_algorithm,
                   "rank {} listens to rank {} over verbs with {} slots of {} bytes, but rank {} expects {} of {}: the "
                   "ranks chose differently",
                   options.peer, options.self, listen_address ? listen_address->depth : 0,
                   listen_address ? listen_address->slot_bytes : 0, options.self, options.depth, options.slot_bytes)
            .about({.rank = options.peer, .peer = options.self});
    auto endpoint = Endpoint::of(options);
    if (!endpoint) return endpoint.take_status();
    auto outgoing = std::make_shared<Outgoing>();
    outgoing->shape = Shape::of(options);
    outgoing->shape.peer_process = listen_address->target().process;
    outgoing->messages.resize(size_t(outgoing->window()));
    auto memory = SlotMemory::make((*endpoint)->devices(), outgoing->memory_bytes(), access::local_write);
    if (!memory) return memory.take_status();
    outgoing->memory = std::move(*memory);
    // The proxy's slots are the targets themselves.
    if (options.driver == ConnectionOptions::Driver::rank) {
        auto ring = OfferRing::make((*endpoint)->devices(), size_t(options.depth));
        if (!ring) return ring.take_status();
        outgoing->offers = std::move(*ring);
    }
    (*endpoint)->connect(*listen_address, outgoing);
    return std::unique_ptr<Sender>(new VerbsSender(std::move(*endpoint), std::move(outgoing)));
}

Result<std::unique_ptr<RegisteredMemory>> VerbsTransport::register_memory(const MemoryRange& range) const {
    const auto devices = Devices::of_process();
    if (!devices) return devices.status().copy();
    auto registered =
        Registered::make(**devices, range, access::local_write | access::remote_write | access::remote_read);
    if (!registered) return registered.take_status();
    return std::unique_ptr<RegisteredMemory>(std::move(*registered));
}

}  // namespace

}  // namespace verbs

Status verbs_trouble() {
    WEFT_TRY(verbs::settings_status());
    const auto devices = verbs::Devices::of_process();
    const Status status = devices ? (*devices)->ports(verbs::settings()).take_status() : devices.status().copy();
    const ErrorId id = status.id();
    const bool of_user = id == error::option_value || id == error::option_names || id == error::option_conflict;
    return of_user ? status.copy() : ok();
}

const Transport& verbs_transport() {
    static const verbs::VerbsTransport row;
    return row;
}

}  // namespace weft::internal
