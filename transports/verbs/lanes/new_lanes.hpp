// new_lanes.hpp: how one side makes queue pairs, and those that it offers for a link until the link is up.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transports/verbs/flush.hpp"
#include "transports/verbs/lanes/rails.hpp"
#include "transports/verbs/site.hpp"

namespace weft::internal::verbs {

// Steps of a lane. Thread-bound to the service thread, except connect_lane().
// The port as it is now, with the GIDs that the peer may choose. `port` is a place in Site::ports.
Result<PortOffer> port_offer(const Site& site, size_t port);
// In INIT, not ready to receive yet. `queue`: of an earlier lane on this port, or null.
Result<Lane> make_lane(Site& site, size_t port, const PortOffer& offer, std::shared_ptr<CompletionQueue> queue);
// Posts the receive requests.
Status prepare_lane(Lane& lane, uint32_t link, size_t place);
// To RTR and RTS, with the extensions (ECE) that the peer named. Afterwards Lane::own has those of both devices, which the
// peer must know before it connects. May block for seconds. verbs.path, verbs.call.
Status connect_lane(Lane& lane, const PathOptions& path);

// Of one side.
struct ConnectedLanes {
    uint64_t lanes = 0;  // a bit for each
    Failure first;       // why the first other one is not connected
    void write(ByteWriter& to) const { to.put(lanes), to.put_failure(first); }
    static ConnectedLanes read(ByteReader& from) {
        const auto lanes = from.get<uint64_t>();
        return {lanes, from.get_failure()};
    }
};

// Owned by a link's set-up. Thread-bound to the service thread.
class NewLanes {
  public:
    Status read_ports(const Site& site);
    Offer offer(const Site& site, uint64_t peer_token) const;
    // The answering side: chooses the rails, makes its queue pairs, and adds both to `answer`. verbs.path.
    Status choose(Site& site, const Offer& peer, Offer& answer);
    // The other side: makes its queue pairs for the rails of the answer. internal.damaged: the numbers cannot be right.
    Status take_answer(Site& site, const Offer& answer);
    // Keeps the queue pairs that both sides have, and lets them receive for the link `link`.
    Status pair_with(const PairLists& peer, uint32_t link);

    // On a thread of its own. `done` runs on the service thread unless *alive is false. verbs.path, verbs.call: a flush is
    // not connected.
    using Done = std::function<void(Result<ConnectedLanes>)>;
    Status connect(const Site& site, int peer, std::shared_ptr<bool> alive, Done done) const;
    // The lanes that one side has connected. True: both sides have told theirs.
    bool own_ready(ConnectedLanes own) { return own_ready_ = std::move(own), peer_ready_.has_value(); }
    bool peer_ready(ConnectedLanes peer) { return peer_ready_ = std::move(peer), own_ready_.has_value(); }
    // Ends the queue pairs that are not connected at both ends. Not ok: none is, and this is why.
    Status settle(const Site& site, int peer);
    // With the service level and the traffic class of the lower rank, once both sides have told theirs.
    PathOptions path(const Site& site) const;

    // This side chose the rails. If not, the peer needs this side's queue pairs as they are when they are connected.
    bool chose() const { return chose_; }
    PairLists pairs() const;  // of this side
    const std::vector<Lane>& lanes() const { return *lanes_; }
    using Lanes = std::shared_ptr<std::vector<Lane>>;
    std::shared_ptr<Flushes> flushes() const { return flushes_; }
    Lanes take() { return std::exchange(lanes_, nullptr); }
    // The places of this side's ports, by rail.
    const std::vector<size_t>& rails() const { return rails_; }
    // The keys of this side's memory, by rail.
    std::vector<uint32_t> keys_of(const Site& site, const Registered& memory) const;
    // On so many of them both sides send. The others are in reserve.
    size_t rails_used() const { return rails_used_; }

  private:
    void agree_on_classes(const Site& site, const Offer& peer);
    Status make_rail(Site& site, size_t port, const PathEnd& own, const PathEnd& peer, uint32_t peer_device,
                     size_t pairs);
    Status make_flush(const Site& site, const Port& port, const PathEnd& own);

    std::vector<PortOffer> ports_;
    std::vector<size_t> rails_;
    size_t rails_used_ = 1;
    bool chose_ = false;
    int service_level_ = -1, traffic_class_ = -1;  // of the peer; -1: the own ones count
    std::optional<ConnectedLanes> own_ready_, peer_ready_;
    std::shared_ptr<Flushes> flushes_ = std::make_shared<Flushes>();  // of a pair for each rail, if a GPU needs them
    Lanes lanes_ = std::make_shared<std::vector<Lane>>();
};

}  // namespace weft::internal::verbs
