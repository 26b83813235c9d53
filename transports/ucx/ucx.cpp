#include "transports/ucx/ucx.hpp"

#include <algorithm>

#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "transports/ucx/ends.hpp"

namespace weft::internal {

namespace ucx {

namespace {

// UCX is never used by itself: Weft's own transports are there, and its library changes the process.
bool selected() {
    const NameList names(options().transports);
    return std::find(names.allowed.begin(), names.allowed.end(), "ucx") != names.allowed.end() && names.admits("ucx");
}

class UcxTransport final : public Transport {
  public:
    UcxTransport() : Transport("ucx", capabilities(Capability::posts, Capability::sleeps, Capability::remote)) {}
    std::string available() const override {
        if (!selected()) return "WEFT_TRANSPORTS does not name it";
        const auto& library = library_of_process();
        return library ? std::string() : library.status().sentence();
    }
    // UCX chooses among its own networks, by pair.
    std::vector<Reached> networks() const override { return {Reached{1, {}}}; }
    std::vector<Rail> rails() const override {
        if (!available().empty()) return {};
        return {{.name = "ucx", .detail = fmt::format("UCX {}", (*library_of_process()).ucp_get_version_string())}};
    }
    std::string can_connect(const ConnectionOptions& options) const override {
        return options.identity == nullptr ? "the communicator has no identity to prove on a network" : available();
    }
    Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) const override;
    Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) const override;
};

Result<std::unique_ptr<Receiver>> UcxTransport::listen(const ConnectionOptions& options, Blob& address) const {
    if (options.depth < 1 || options.identity == nullptr)
        return fail(error::internal_state, "rank {} cannot listen to rank {} over ucx with {} slots", options.self,
                    options.peer, options.depth);
    auto listener = net::Listener::of_process();
    if (!listener) return listener.take_status();
    tcp::ListenAddress door{
        .depth = options.depth, .slot_bytes = options.slot_bytes, .addresses = (*listener)->addresses()};
    door.token = tcp::ListenAddress::make_token();
    address = door.blob();
    auto end =
        make_end(options, door.token, std::make_shared<tcp::TcpConnection>(options, std::move(*listener), door.token));
    if (!end) return end.take_status();
    return make_receiver(std::move(*end));
}

Result<std::unique_ptr<Sender>> UcxTransport::connect(const ConnectionOptions& options, const Blob& address) const {
    const auto door = tcp::ListenAddress::of(address);
    if (!door || door->depth != options.depth || door->slot_bytes != options.slot_bytes)
        return fail(error::mismatch_algorithm,
                    "rank {} listens to rank {} over ucx with {} slots of {} bytes, but rank {} expects {} of {}: the "
                    "ranks chose differently",
                    options.peer, options.self, door ? door->depth : 0, door ? door->slot_bytes : 0, options.self,
                    options.depth, options.slot_bytes)
            .about({.rank = options.peer, .peer = options.self});
    auto connection = std::make_shared<tcp::TcpConnection>(options);
    auto own = net::local_addresses();
    if (!own) return own.take_status();
    connection->set_target(*door, *own, 1);
    auto end = make_end(options, door->token, std::move(connection));
    if (!end) return end.take_status();
    return make_sender(std::move(*end));
}

}  // namespace

}  // namespace ucx

const Transport* ucx_transport() {
    static const ucx::UcxTransport row;
    return &row;
}

Status ucx_trouble() {
    if (!ucx::selected()) return ok();
    return ucx::library_of_process().status().copy();
}

}  // namespace weft::internal
