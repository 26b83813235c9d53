// leaders.hpp: leaders of several hosts in this process, each with a segment of its own, and their root.
#pragma once
#include <sys/eventfd.h>

#include <algorithm>
#include <climits>
#include <map>
#include <optional>
#include <thread>

#include "src/base/process_token.hpp"
#include "src/control/control.hpp"
#include "src/rendezvous/root_rendezvous.hpp"
#include "src/segment/oob_store.hpp"
#include "tests/bootstrap/test_clock.hpp"
#include "tests/net/ends.hpp"

namespace weft::internal::test {

template <class T>
T value_of(Result<T> result) {
    if (!result) FAIL(result.status().sentence());
    return std::move(*result);
}

// Hosts with one rank each, checked in at a root in this process; host 9 is below host 1 in the tree.
class Hosts {
  public:
    // Only the first `present` of them if less than all are.
    explicit Hosts(int count, int64_t heartbeat_ms = 1'000'000'000, int present = INT_MAX)
        : heartbeat_ms_(heartbeat_ms), count_(count), dispatcher_(value_of(AcceptDispatcher::of_process())) {
        root_.emplace(dispatcher_, identity_);
        groups_.resize(size_t(count));
        controls_.resize(size_t(count));
        traffic_.resize(size_t(count));
        for (int host = 0; host < std::min(count, present); ++host) add(host);
    }
    // One more host comes. `addresses`: where it claims to listen; none: where it does.
    void add(int host, const std::vector<net::Address>& addresses = {}) {
        groups_[size_t(host)] = make_group(count_, host);
        add_leader(host, addresses);
    }
    ~Hosts() {
        for (int host = 0; host < int(controls_.size()); ++host)
            if (controls_[size_t(host)]) leave(host);
        CHECK(eventually(
            [&] { return std::all_of(left_.begin(), left_.end(), [](auto& one) { return one.expired(); }); }));
    }

    Segment& operator[](int host) { return *groups_[size_t(host)]; }
    AcceptDispatcher& dispatcher() { return *dispatcher_; }
    const net::Identity& identity() const { return identity_; }
    // All that have come have the rank table.
    bool met() {
        // As a rank that joins: the service thread may still be in settle() of its own.
        return eventually([&] {
            return std::all_of(groups_.begin(), groups_.end(), [](const auto& group) {
                return !group || (!group->one_host() && group->settle().ok());
            });
        });
    }
    void leave(int host) {
        auto& control = controls_[size_t(host)];
        (*this)[host].row(host).state.store(RankState::left);
        if (const auto later = later_.find(host); later != later_.end())
            (*this)[host].row(later->second).state.store(RankState::left);
        left_.push_back(control);
        Control::leave(std::move(control));
    }
    // The process of its leader ends.
    void end(int host) { controls_[size_t(host)].reset(); }
    void end_root() { root_.reset(); }
    RootRendezvous& root() { return *root_; }
    Control& control(int host) { return *controls_[size_t(host)]; }
    CheckInTraffic traffic(int host) {
        CheckInTraffic traffic;
        dispatcher_->service().run([&] { traffic = *traffic_[size_t(host)]; });
        return traffic;
    }
    // All that have come have a place.
    bool placed() {
        return eventually([&] {
            for (int host = 0; host < count_; ++host)
                if (controls_[size_t(host)] && traffic(host).place == 0) return false;
            return true;
        });
    }
    // The host at a place.
    int at(int place) {
        for (int host = 0; host < count_; ++host)
            if (controls_[size_t(host)] && traffic(host).place == place) return host;
        FAIL("no host has place " << place);
        return -1;
    }
    // The entry with which its leader checks in.
    HostEntry entry(int host) const {
        HostEntry self;
        self.identity = uint64_t(host) + 1;
        self.name = "node" + std::to_string(host);
        self.pid = getpid();
        self.ranks = count_;
        self.machine = {std::string(1000, 'm'), "domain"};
        self.addresses = dispatcher_->listener().addresses();
        return self;
    }
    // Another rank of the host joins after its check-in.
    void join(int host, int rank) {
        Segment& group = (*this)[host];
        later_[host] = rank;
        add_rank(group, rank);
        group.header().joined = 2;
        group.doorbell().ring();
    }
    // An entry from one host to another.
    void post(int from, int to, uint64_t key) {
        const char text[] = "entry";
        REQUIRE(OobStore((*this)[from]).put(from, to, key, text, sizeof text));
    }
    // While the test's clock moves on.
    bool aborts(int host) {
        return eventually([&] {
            test_time_us += 1'000'000;
            return (*this)[host].aborted();
        });
    }
    // Not while the test's clock moves on by this time.
    bool waits(int host, int64_t us) {
        test_time_us += us;
        std::this_thread::sleep_for(std::chrono::microseconds(2 * TreeLinks::tick_us));
        return !(*this)[host].aborted();
    }
    // All controls that were left.
    bool ended() {
        return eventually([&] {
            return std::all_of(left_.begin(), left_.end(), [](const auto& control) { return control.expired(); });
        });
    }
    bool comes(int from, int to, uint64_t key) {
        return eventually([&] { return OobStore((*this)[to]).get(from, key) != nullptr; });
    }

  private:
    static std::shared_ptr<Segment> make_group(int ranks, int rank) {
        auto group = value_of(Segment::create(ranks, false));
        group->doorbell().set(Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
        add_rank(*group, rank);
        group->header().joined = 1;
        return group;
    }
    static void add_rank(Segment& group, int rank) {
        RankRow& row = group.row(rank);
        row.pid = 1000 + rank;  // the rank table tells hosts apart by the pids of their ranks
        row.process = process_token();
        row.cpus = allowed_cpus();
        row.state = RankState::joined;
        group.rank_info(rank).pid = row.pid;
    }
    void add_leader(int host, const std::vector<net::Address>& addresses) {
        ControlSettings settings;
        settings.heartbeat_ms = heartbeat_ms_;
        settings.clock = test_clock;
        settings.settled_event = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        settings.check_in.root = dispatcher_->listener().addresses();
        settings.check_in.root_exists = true;
        settings.check_in.self = entry(host);
        traffic_[size_t(host)] = settings.check_in.traffic;
        if (!addresses.empty()) settings.check_in.self.addresses = addresses;
        controls_[size_t(host)] =
            std::make_shared<Control>(dispatcher_, groups_[size_t(host)], identity_, std::move(settings));
    }

    int64_t heartbeat_ms_;
    int count_;
    std::map<int, int> later_;  // by host
    net::Identity identity_ = fresh_identity();
    std::shared_ptr<AcceptDispatcher> dispatcher_;
    std::optional<RootRendezvous> root_;
    std::vector<std::shared_ptr<Segment>> groups_;
    std::vector<std::shared_ptr<Control>> controls_;
    std::vector<std::shared_ptr<CheckInTraffic>> traffic_;
    std::vector<std::weak_ptr<Control>> left_;
};

}  // namespace weft::internal::test
