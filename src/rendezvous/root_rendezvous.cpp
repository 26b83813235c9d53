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
    Client& client = clients_.emplace_back();
    client.link = std::make_unique<ControlConnection>(
        dispatcher_->service(), std::move(accepted.socket),
        [this, &client](uint32_t kind, ByteReader& content) { on_frame(client, kind, content); },
        [this, &client](const Status& why) { on_end(client, why); });
    if (timer_ == 0) timer_ = dispatcher_->service().after(tell_after_us, [this] { tell_waiting(); });
}

void RootRendezvous::on_frame(Client& client, uint32_t kind, ByteReader& content) {
    Status status;
    std::vector<RankEntry> members;
    if (!failure_ || complete_) {  // too late: it receives the outcome of the others
        if (complete_) status = fail(error::init_id_used, "all {} ranks of this unique id have joined already", ranks_);
    } else if (kind == uint32_t(CheckInFrame::host) && !client.checked_in) {
        client.entry = HostEntry::read(content);
        client.checked_in = true;
        members = std::exchange(client.entry.members, {});
        if (ranks_ == 0) {
            ranks_ = client.entry.ranks;
            first_text_ = client.entry.text();
        }
        if (content.ok() && client.entry.ranks != ranks_) {
            status = fail(error::mismatch_ranks,
                          "the ranks of {} were given nranks {}, and those of {} were given {}: all ranks must be "
                          "given the same nranks",
                          client.entry.text(), client.entry.ranks, first_text_, ranks_);
        } else {
            status = add_ranks(client, members, content);
        }
        WEFT_LOG(info, init, "{} checked in with {} of {} ranks", client.entry.text(), members.size(), ranks_);
    } else if (kind == uint32_t(CheckInFrame::joined) && client.checked_in) {
        client.entry.share = get_share(content);
        for (uint32_t left = content.get<uint32_t>(); left > 0 && content.ok(); --left)
            members.push_back(RankEntry::read(content));
        status = add_ranks(client, members, content);
    } else if (kind == uint32_t(CheckInFrame::failed)) {
        status = Status(content.get_failure());
    } else {
        status = fail(error::internal_state, "{} sent the root an unexpected message", client.link->peer().text());
    }
    if (!status && complete_) {
        refuse(client, status);
    } else if (!status) {
        fail_all(std::move(status));
    } else if (!failure_) {
        refuse(client, failure_);
    } else if (ranks_ > 0 && int(by_rank_.size()) == ranks_) {
        finish();
    }
}

Status RootRendezvous::add_ranks(Client& client, const std::vector<RankEntry>& members, ByteReader& content) {
    for (const RankEntry& member : members) {
        if (member.rank < 0 || member.rank >= ranks_)
            return fail(error::internal_state, "{} claims to have rank {} of {}", client.entry.text(), member.rank,
                        ranks_);
        if (const auto [place, first] = by_rank_.emplace(member.rank, &client); !first) {
            const HostEntry& other = place->second->entry;
            const auto earlier = std::find_if(other.members.begin(), other.members.end(),
                                              [&](const RankEntry& one) { return one.rank == member.rank; });
            return fail(error::mismatch_rank_twice, "two processes are rank {} of {}: pid {} on {} and pid {} on {}",
                        member.rank, ranks_, earlier->pid, other.text(), member.pid, client.entry.text())
                .about({.rank = member.rank});
        }
        client.entry.members.push_back(member);
        if (member.rank == 0) {
            agreed_ = content.get<AgreedOptions>();
            texts_.tuning = content.get_bytes();
            texts_.refusal = content.get_optional_failure();
        }
    }
    if (!content.at_end())
        return fail(error::internal_damaged, "{} sent the root a damaged message", client.entry.text());
    return ok();
}

void RootRendezvous::finish() {
    complete_ = true;
    std::vector<Client*> order;
    for (Client& client : clients_)
        if (client.checked_in) {
            std::sort(client.entry.members.begin(), client.entry.members.end(),
                      [](const RankEntry& one, const RankEntry& other) { return one.rank < other.rank; });
            if (!client.entry.members.empty()) order.push_back(&client);
        }
    std::sort(order.begin(), order.end(), [](const Client* one, const Client* other) {
        return one->entry.members.front().rank < other->entry.members.front().rank;
    });
    RankTable rank_table;
    rank_table.agreed = agreed_;
    rank_table.texts = std::move(texts_);
    for (Client* client : order) {
        rank_table.texts.add_machine(std::exchange(client->entry.machine, {}));
        if (!rank_table.texts.refusal) rank_table.texts.refusal = std::move(client->entry.refusal);
        rank_table.hosts.push_back(client->entry);
    }
    rank_table.facts = facts_of(rank_table.hosts);
    ByteWriter common;
    rank_table.write(common);
    for (Client& client : clients_) {
        // A client that has not checked in comes too late.
        if (std::find(order.begin(), order.end(), &client) == order.end()) continue;
        client.link->send(uint32_t(CheckInFrame::rank_table), common);
        client.link->close_when_idle();
    }
    WEFT_LOG(info, init, "all {} ranks have checked in, on {} hosts", ranks_, order.size());
}

void RootRendezvous::refuse(Client& client, const Status& why) {
    ByteWriter content;
    content.put_failure(why.failure());
    client.link->send(uint32_t(CheckInFrame::refused), content);
    client.link->close_when_idle();
}

void RootRendezvous::fail_all(Status failure) {
    failure_ = std::move(failure);
    WEFT_LOG(warn, init, "the rendezvous failed: {}", failure_.text());
    for (Client& client : clients_) refuse(client, failure_);
}

void RootRendezvous::on_end(Client& client, const Status& why) {
    const HostEntry entry = std::move(client.entry);
    const bool counted = client.checked_in && !entry.members.empty();
    clients_.remove_if([&](const Client& one) { return &one == &client; });
    if (counted && !complete_ && failure_) {
        std::vector<int> lost;
        for (const RankEntry& member : entry.members) lost.push_back(member.rank);
        std::sort(lost.begin(), lost.end());
        fail_all(fail(error::init_rank_died, "process {}, which led {} with {}, ended while the ranks were joining: {}",
                      entry.pid, entry.text(), ranks_text(lost), why ? "it closed the connection" : why.sentence())
                     .about({.rank = lost.front()}));
    }
    if ((!complete_ && failure_) || !clients_.empty()) return;
    finished_.store(true, std::memory_order_release);
    // A failed root sends its failure to late hosts until it is closed.
    if (complete_) dispatcher_->service().post([] { close_finished(); });
}

std::string RootRendezvous::missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank)
        if (!by_rank_.count(rank)) ranks.push_back(rank);
    return ranks_text(ranks);
}

void RootRendezvous::tell_waiting() {
    timer_ = dispatcher_->service().after(tell_after_us, [this] { tell_waiting(); });
    if (complete_ || !failure_ || ranks_ == 0) return;
    ByteWriter content;
    content.put_text(missing());
    for (Client& client : clients_) client.link->send(uint32_t(CheckInFrame::waiting), content);
}

}  // namespace weft::internal
