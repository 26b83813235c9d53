#include "src/rendezvous/root_rendezvous.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal {

namespace {

constexpr int64_t tell_after_us = 1'000'000;
constexpr int64_t rank_table_patience_us = 2'000'000;

// Of ids that no rank has used yet. Each costs memory, and a check for every incoming connection.
constexpr size_t open_roots_most = 1024;

struct OpenRoot {
    std::unique_ptr<RootRendezvous> root;
    uint64_t number;  // grows: the smallest is the oldest
};
struct OpenRoots {
    std::mutex mutex;
    std::map<net::IdName, OpenRoot> roots;
    uint64_t next_number = 0;
};
OpenRoots& open_roots() {
    static PerProcess<OpenRoots> processes;
    return processes.get();
}

}  // namespace

void RootRendezvous::keep(std::unique_ptr<RootRendezvous> root, const net::IdName& name) {
    static const int registered = atexit(await_finished);
    (void)registered;
    close_finished();
    std::unique_ptr<RootRendezvous> ended;  // destroyed outside the lock
    std::lock_guard lock(open_roots().mutex);
    auto& roots = open_roots().roots;
    auto oldest = roots.end();
    for (auto it = roots.begin(); it != roots.end(); ++it)
        if (!it->second.root->used_.load(std::memory_order_acquire) &&
            (oldest == roots.end() || it->second.number < oldest->second.number))
            oldest = it;
    if (roots.size() >= open_roots_most && oldest != roots.end()) {
        WEFT_LOG(warn, init,
                 "this process made {} unique ids that no rank has used: ranks on several hosts cannot use the oldest "
                 "any more",
                 roots.size());
        ended = std::move(oldest->second.root);
        roots.erase(oldest);
    }
    roots[name] = {std::move(root), open_roots().next_number++};
}

void RootRendezvous::close_finished() {
    std::map<net::IdName, OpenRoot> ended;  // destroyed outside the lock
    std::lock_guard lock(open_roots().mutex);
    auto& roots = open_roots().roots;
    for (auto it = roots.begin(); it != roots.end();)
        if (it->second.root->finished())
            ended.insert(roots.extract(it++));
        else
            ++it;
}

void RootRendezvous::await_finished() {
    for (const int64_t until = now_us() + rank_table_patience_us; now_us() < until; usleep(1000)) {
        std::lock_guard lock(open_roots().mutex);
        if (std::none_of(open_roots().roots.begin(), open_roots().roots.end(), [](const auto& entry) {
                return entry.second.root->complete_ && !entry.second.root->finished();
            }))
            return;
    }
}

void RootRendezvous::release(const net::IdName& name) {
    std::unique_ptr<RootRendezvous> ended;  // destroyed outside the lock
    std::lock_guard lock(open_roots().mutex);
    const auto place = open_roots().roots.find(name);
    if (place == open_roots().roots.end()) return;
    RootRendezvous& root = *place->second.root;
    if (root.used_.load(std::memory_order_acquire) && !root.finished()) return;
    ended = std::move(place->second.root);
    open_roots().roots.erase(place);
}

RootRendezvous::RootRendezvous(std::shared_ptr<AcceptDispatcher> dispatcher, const net::Identity& identity,
                               std::function<void()> on_use)
    : dispatcher_(std::move(dispatcher)), identity_(identity), on_use_(std::move(on_use)) {
    dispatcher_->listener().register_identity(identity_, true);
    dispatcher_->service().run([this] {
        dispatcher_->service().on_failure(this, [this](ErrorId error, const char* what) {
            if (failure_ && !complete_) fail_all(fail(error, "the process where the ranks check in failed: {}", what));
        });
        dispatcher_->expect(
            identity_.name, net::checkin, {},
            [this](net::AcceptedConnection accepted) { welcome(std::move(accepted)); },
            [this](const Status& trouble) {
                if (failure_ && !complete_) fail_all(trouble.copy());
            });
    });
}

RootRendezvous::~RootRendezvous() {
    dispatcher_->service().run([this] {
        dispatcher_->stop_expecting(identity_.name, net::checkin, {});
        dispatcher_->service().cancel(timer_);
        dispatcher_->service().on_failure(this, {});
        for (Client& client : clients_) client.link->part();
        clients_.clear();
    });
    dispatcher_->listener().unregister_identity(identity_.name, true);
}

void RootRendezvous::welcome(net::AcceptedConnection accepted) {
    used_.store(true, std::memory_order_release);
    // As a task, because it may open and close roots.
    if (auto on_use = std::exchange(on_use_, {})) dispatcher_->service().post(std::move(on_use));
    ++traffic_.connections;
    Client& client = clients_.emplace_back();
    client.link = std::make_unique<ControlConnection>(
        dispatcher_->service(), std::move(accepted.socket),
        [this, &client](uint32_t kind, ByteReader& content) { on_frame(client, CheckInFrame(kind), content); },
        [this, &client](const Status& why) { on_end(client, why); });
    if (timer_ == 0) timer_ = dispatcher_->service().after(tell_after_us, [this] { tell_waiting(); });
}

void RootRendezvous::send(Client& client, CheckInFrame kind, const ByteWriter& content) {
    traffic_.sent(kind, content.bytes().size());
    client.link->send(uint32_t(kind), content);
}

void RootRendezvous::on_frame(Client& client, CheckInFrame kind, ByteReader& content) {
    traffic_.received(kind, content.left());
    if (complete_) {
        if (kind != CheckInFrame::alone) refuse_used(client);
        return;
    }
    if (failure_)
        if (Status status = read(client, kind, content); !status) return fail_all(std::move(status));
    if (!failure_) return refuse(client, failure_);  // too late: it receives the outcome of the others
    if (!complete_ && roster_.complete() && moving_ == 0) finish();
}

Status RootRendezvous::read(Client& client, CheckInFrame kind, ByteReader& content) {
    const bool known = client.state == Client::here || client.state == Client::moving;
    if (kind == CheckInFrame::host && client.state == Client::fresh) return check_in(client, content);
    if (kind == CheckInFrame::failed) return Status(content.get_failure());
    if (kind == CheckInFrame::joined && known) return roster_.add_joined(content);
    if (kind == CheckInFrame::lost && known) return read_lost(content);
    if (kind == CheckInFrame::machine && known) {
        const std::string text = content.get_bytes();
        roster_.add_machine(identity_.secret.prove(text.data(), text.size()), text);
        return ok();
    }
    if ((kind == CheckInFrame::attached || kind == CheckInFrame::detached) && client.state == Client::moving) {
        --moving_;
        client.state = kind == CheckInFrame::attached ? Client::elsewhere : Client::here;
        // The leader does not close it: unread data could then destroy its last frame.
        if (client.state == Client::elsewhere) client.link->close_when_idle();
        if (client.state == Client::here)
            WEFT_LOG(info, init, "{} waits at the root: {}", roster_.host(client.place).text(), content.get_text());
        return ok();
    }
    if (kind == CheckInFrame::alone && known) return end_without_table(client), ok();
    return fail(error::internal_state, "{} sent the root an unexpected message", client.link->peer().text());
}

Status RootRendezvous::check_in(Client& client, ByteReader& content) {
    auto place = roster_.add_host(content);
    if (!place) return place.take_status();
    client.place = *place;
    const HostEntry& host = roster_.host(*place);
    WEFT_LOG(info, init, "{} checked in with {} of {} ranks", host.text(), host.members.size(), roster_.ranks());
    const Placement placement = roster_.placement(*place);
    client.state = placement.parent == 0 ? Client::here : Client::moving;
    moving_ += client.state == Client::moving;
    ByteWriter answer;
    placement.write(answer);
    send(client, CheckInFrame::placed, answer);
    return ok();
}

Status RootRendezvous::read_lost(ByteReader& content) {
    const int place = content.get<int32_t>();
    const std::string why = content.get_text();
    if (!content.at_end() || !roster_.has(place)) return fail(error::internal_damaged, "a report of an end is damaged");
    return leader_lost(leader_text(roster_.host(place)), lowest_rank(roster_.host(place)), why);
}

void RootRendezvous::finish() {
    complete_ = true;
    ByteWriter content;
    roster_.rank_table().write(content);
    for (Client& client : clients_) {
        if (client.state != Client::here) continue;  // a client that has not checked in comes too late
        send(client, CheckInFrame::rank_table, content);
        client.link->close_when_idle();
    }
    WEFT_LOG(info, init, "all {} ranks have checked in, on {} hosts; the rank table has {} bytes; the root had {}",
             roster_.ranks(), roster_.hosts(), content.bytes().size(), traffic_.text());
}

// All ranks are on this client's host.
void RootRendezvous::end_without_table(const Client& alone) {
    complete_ = true;
    WEFT_LOG(info, init, "all {} ranks are on {}", roster_.ranks(), roster_.host(alone.place).name);
    for (Client& client : clients_)
        if (&client != &alone && client.state != Client::elsewhere) refuse_used(client);
}

CheckInTraffic RootRendezvous::traffic() {
    CheckInTraffic traffic;
    dispatcher_->service().run([&] { traffic = traffic_; });
    return traffic;
}

void RootRendezvous::refuse(Client& client, const Status& why) {
    ByteWriter content;
    content.put_failure(why.failure());
    send(client, CheckInFrame::refused, content);
    client.link->close_when_idle();
}

void RootRendezvous::refuse_used(Client& client) {
    refuse(client, fail(error::init_id_used, "all {} ranks of this unique id have joined already", roster_.ranks()));
}

void RootRendezvous::fail_all(Status failure) {
    failure_ = std::move(failure);
    WEFT_LOG(warn, init, "the rendezvous failed: {}", failure_.text());
    for (Client& client : clients_)
        if (client.state != Client::elsewhere) refuse(client, failure_);
}

void RootRendezvous::on_end(Client& client, const Status& why) {
    const int place = client.state == Client::elsewhere ? 0 : client.place;
    moving_ -= client.state == Client::moving;
    clients_.remove_if([&](const Client& one) { return &one == &client; });
    if (place > 0 && !complete_ && failure_) {
        const HostEntry& host = roster_.host(place);
        fail_all(leader_lost(leader_text(host), lowest_rank(host), end_text(why)));
    }
    if ((!complete_ && failure_) || !clients_.empty()) return;
    finished_.store(true, std::memory_order_release);
    // A failed root sends its failure to late hosts until it is closed.
    if (complete_) dispatcher_->service().post([] { close_finished(); });
}

// The missing ranks; if there are none, a leader on its way.
std::string RootRendezvous::obstacle() const {
    if (!roster_.all_joined()) return roster_.missing();
    for (const Client& client : clients_)
        if (client.state == Client::moving)
            return fmt::format("{}, to connect to {}", leader_text(roster_.host(client.place)),
                               leader_text(roster_.host(CheckInTree::parent(client.place))));
    return "the description of a machine";
}

void RootRendezvous::tell_waiting() {
    timer_ = dispatcher_->service().after(tell_after_us, [this] { tell_waiting(); });
    if (complete_ || !failure_ || roster_.ranks() == 0) return;
    ByteWriter content;
    content.put_text(obstacle());
    for (Client& client : clients_)
        if (client.state != Client::elsewhere) send(client, CheckInFrame::waiting, content);
}

}  // namespace weft::internal
