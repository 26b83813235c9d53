#include "src/bootstrap/meeting.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "src/base/arena.hpp"
#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/bootstrap/handshake.hpp"

namespace weft {

// The process's part of a meeting: it leads or is a guest. Its lock is held for short, non-blocking steps only; any
// rank thread of the process makes the steps.
class Gathering {
  public:
    Gathering(const UniqueId& id, int ranks) : id_(id), ranks_(ranks) {}

    // The segment once this process has it.
    Result<std::shared_ptr<HostGroup>> advance() {
        std::lock_guard lock(mutex_);
        if (!role_known()) WEFT_TRY(take_role());
        if (listener_) WEFT_TRY(serve());
        if (connection_) WEFT_TRY(be_guest());
        return group_;
    }

    void descriptors(std::vector<pollfd>& list) {
        std::lock_guard lock(mutex_);
        if (listener_) list.push_back({listener_.number(), POLLIN, 0});
        if (connection_) list.push_back({connection_.number(), POLLIN, 0});
        for (const Guest& guest : guests_) list.push_back({guest.socket.number(), POLLIN, 0});
    }

    // Everybody has joined: nobody else is let in.
    void close() {
        std::lock_guard lock(mutex_);
        listener_.reset();
        guests_.clear();
    }

  private:
    struct Guest {
        Fd socket;
        int pid = 0;
        Message challenge, hello;
        bool greeted = false;
    };

    bool role_known() const { return listener_ || connection_ || group_; }

    Status take_role() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string name = id_.meeting_name();
        memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: the first byte is zero
        const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        Fd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (!socket_fd) return fail(weftSystemError, "no Unix socket to be had: {}", errno_text(errno));
        if (bind(socket_fd.number(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
            if (listen(socket_fd.number(), 4096) != 0)
                return fail(weftSystemError, "listen on a Unix socket: {}", errno_text(errno));
            auto group = HostGroup::create(ranks_, false);
            if (!group) return group.take_status();
            group_ = std::move(*group);
            listener_ = std::move(socket_fd);
            WEFT_LOG(info, init, "this process leads the meeting of {} ranks, segment of {} KiB", ranks_,
                     group_->memory().segment_bytes() >> 10);
            return ok();
        }
        if (errno != EADDRINUSE) return fail(weftSystemError, "bind of a Unix socket: {}", errno_text(errno));
        Fd guest(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (!guest) return fail(weftSystemError, "no Unix socket to be had: {}", errno_text(errno));
        if (connect(guest.number(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
            // Bound but not listening yet, its backlog full, or just gone: next time.
            if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return ok();
            return fail(weftSystemError, "connect to the leader of the meeting: {}", errno_text(errno));
        }
        WEFT_TRY(check_user(guest.number(), leader_pid_));
        hello_ = {};
        hello_.pid = getpid();
        random_bytes(hello_.nonce.data(), hello_.nonce.size());
        auto sent = send_message(guest.number(), hello_);
        if (!sent) return leader_failed(sent.take_status());
        connection_ = std::move(guest);
        return ok();
    }

    static Status check_user(int socket, int& pid) {
        ucred peer{};
        socklen_t length = sizeof peer;
        if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
            return fail(weftSystemError, "who is at the other end of a Unix socket: {}", errno_text(errno));
        pid = peer.pid;
        if (peer.uid != geteuid())
            return fail(weftSystemError,
                        "process {} of user {} takes part in the meeting; ranks of one communicator run as one user",
                        peer.pid, peer.uid);
        return ok();
    }

    static constexpr int accepted_at_once = 64;  // a step ends, however fast strangers come

    // One step of everything that guests want. A guest that misbehaves is dropped, whoever it is: it cannot hurt the
    // meeting.
    Status serve() {
        for (int accepted = 0; accepted < accepted_at_once; ++accepted) {
            const int socket = accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (socket < 0) {
                // Guests that are being served give theirs back soon.
                const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
                if (exhausted && guests_.empty())
                    return fail(
                        weftSystemError,
                        "the leader of the meeting cannot accept another process: {}; raise the limit (ulimit -n)",
                        errno_text(errno));
                break;
            }
            Guest guest;
            guest.socket = Fd(socket);
            if (Status status = check_user(socket, guest.pid); !status)
                WEFT_LOG(warn, init, "a stranger was turned away: {}", status.sentence());
            else
                guests_.push_back(std::move(guest));
        }
        for (auto guest = guests_.begin(); guest != guests_.end();) {
            auto done = serve(*guest);
            if (!done) WEFT_LOG(warn, init, "process {} was turned away: {}", guest->pid, done.status().sentence());
            guest = !done || *done ? guests_.erase(guest) : std::next(guest);
        }
        return ok();
    }

    Result<bool> serve(Guest& guest) {
        auto message = receive_message(guest.socket.number());
        if (!message) return message.take_status();
        if (!*message) return false;
        if (!guest.greeted && (*message)->kind == Message::hello) {
            guest.greeted = true;
            guest.hello = **message;
            guest.challenge.kind = Message::challenge;
            guest.challenge.pid = getpid();
            random_bytes(guest.challenge.nonce.data(), guest.challenge.nonce.size());
            guest.challenge.mac = challenge_mac(id_, guest.hello.nonce, guest.challenge.nonce);
            auto sent = send_message(guest.socket.number(), guest.challenge);
            if (!sent) return sent.take_status();
            return false;
        }
        if (!guest.greeted || (*message)->kind != Message::proof ||
            !equal_digests((*message)->mac, proof_mac(id_, guest.hello.nonce, guest.challenge.nonce)))
            return fail(weftRemoteError, "it does not know the secret of the unique id");
        Message answer;
        answer.pid = getpid();
        if (guest.hello.library_version != WEFT_VERSION_CODE) {
            const std::string sentence = fmt::format(
                "process {} has version {} of the Weft library and process {} version {}: all ranks need the same",
                guest.pid, guest.hello.library_version, getpid(), WEFT_VERSION_CODE);
            group_->raise(weftMismatch, -1, sentence);
            answer.kind = Message::refusal;
            answer.code = weftMismatch;
            strncpy(answer.sentence, sentence.c_str(), sizeof answer.sentence - 1);
            auto sent = send_message(guest.socket.number(), answer);
            if (!sent) return sent.take_status();
            return true;
        }
        answer.kind = Message::welcome;
        auto sent = send_message(guest.socket.number(), answer, group_->memory().fd());
        if (!sent) return sent.take_status();
        return true;
    }

    // What a guest says when it cannot talk to the leader; the system's refusals to this process stay as they are.
    Status leader_failed(Status cause) const {
        if (cause.code() != weftRemoteError) return cause;
        return fail(weftRemoteError,
                    "process {}, which led the meeting of the ranks, ended or turned this process away ({})",
                    leader_pid_, cause.sentence());
    }

    Status be_guest() {
        Fd passed;
        auto received = receive_message(connection_.number(), &passed);
        if (!received) return leader_failed(received.take_status());
        if (!*received) return ok();
        const Message& message = **received;
        switch (message.kind) {
            case Message::challenge: {
                if (!equal_digests(message.mac, challenge_mac(id_, hello_.nonce, message.nonce)))
                    return fail(weftSystemError,
                                "process {} holds the meeting's socket but does not know the secret of the unique id",
                                leader_pid_);
                Message proof;
                proof.kind = Message::proof;
                proof.pid = getpid();
                proof.mac = proof_mac(id_, hello_.nonce, message.nonce);
                proved_ = true;
                auto sent = send_message(connection_.number(), proof);
                return sent ? ok() : leader_failed(sent.take_status());
            }
            case Message::welcome: {
                if (!proved_ || !passed) break;
                auto group = HostGroup::map(std::move(passed), false);
                if (!group) return group.take_status();
                group_ = std::move(*group);
                connection_.reset();
                return ok();
            }
            case Message::refusal:
                if (!proved_ || message.code <= weftSuccess || message.code >= weftNumResults) break;
                return {weftResult_t(message.code), message.sentence};
            default: break;
        }
        return fail(weftInternalError, "process {}, which leads the meeting, sent a message out of turn", leader_pid_);
    }

    std::mutex mutex_;
    UniqueId id_;
    int ranks_;
    std::shared_ptr<HostGroup> group_;
    Fd listener_;  // the leader's
    std::list<Guest> guests_;
    Fd connection_;  // a guest's, to the leader
    Message hello_;
    bool proved_ = false;
    int leader_pid_ = 0;
};

namespace {

// The ranks of one process share one mapping, so that they share its lifetime lock, its descriptors, and, under a race
// detector, its addresses.
std::shared_ptr<Gathering> gathering_for(const UniqueId& id, int ranks) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<Gathering>> all;
    std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
    auto& entry = all[fmt::format("{} {}", process_token(), id.meeting_name())];
    auto gathering = entry.lock();
    if (!gathering) {
        gathering = std::make_shared<Gathering>(id, ranks);
        entry = gathering;
    }
    return gathering;
}

constexpr int64_t slice_ms = 5;

}  // namespace

Meeting::Meeting(const UniqueId& id, int ranks, int rank, const MeetingOptions& options)
    : id_(id),
      ranks_(ranks),
      rank_(rank),
      options_(options),
      gathering_(gathering_for(id, ranks)),
      begun_us_(now_us()) {}

Meeting::~Meeting() = default;

Result<bool> Meeting::advance() {
    auto segment = gathering_->advance();
    if (!segment) return give_up(segment.take_status());
    if (!group_ && *segment) group_ = *segment;
    if (group_ && !claimed_)
        if (Status status = claim(); !status) return give_up(std::move(status));
    // Complete, even if others have gone on and failed since: the first call says so.
    if (group_ && int(group_->header().joined.load(std::memory_order_acquire)) == ranks_) {
        gathering_->close();
        if (Status status = group_->settle(); !status) return give_up(std::move(status));
        return true;
    }
    if (Status status = check_others(); !status) return give_up(std::move(status));
    return false;
}

Status Meeting::claim() {
    if (group_->ranks() != ranks_)
        return fail(weftMismatch,
                    "rank {} (pid {}) was told that there are {} ranks, the rank that came first {}: all ranks must be "
                    "given the same nranks",
                    rank_, getpid(), ranks_, group_->ranks());
    // What takes long or may fail comes before the claim: a rank that ends between claiming and joining is missed late.
    auto arena = Arena::get();
    const CpuSet cpus = allowed_cpus();
    RankRow& row = group_->row(rank_);
    RankState absent = RankState::absent;
    if (!row.state.compare_exchange_strong(absent, RankState::claimed)) {
        for (int i = 0; i < 1000 && row.state.load() == RankState::claimed; ++i)
            usleep(1000);  // until it has written its pid
        return fail(weftMismatch, "two processes are rank {} of {}: pid {} and pid {}", rank_, ranks_, row.pid,
                    getpid());
    }
    row.pid = getpid();
    row.process = process_token();
    row.token_address = process_token_address();
    row.arena_fd = arena ? (*arena)->memory().fd() : -1;
    row.arena_inode = arena ? (*arena)->memory().inode() : 0;
    row.cpus = cpus;
    WEFT_TRY(group_->mark_alive(rank_));
    if (rank_ == 0) group_->header().agreed = options_.proposal;
    row.state.store(RankState::joined, std::memory_order_release);
    claimed_ = true;
    auto& joined = group_->header().joined;
    if (int(joined.fetch_add(1, std::memory_order_acq_rel)) + 1 == ranks_)
        syscall(SYS_futex, &joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return ok();
}

// A failure of one is the end for all: nobody waits for a rank that has given up.
Status Meeting::give_up(Status failure) {
    if (group_) group_->raise(failure.code(), rank_, failure.sentence());
    return failure;
}

Status Meeting::check_others() {
    if (group_ && group_->aborted()) return group_->abort_status();
    const int64_t now = now_us();
    if (options_.timeout_ms > 0 && now - begun_us_ > options_.timeout_ms * 1000) {
        if (!group_)
            return fail(weftTimeout,
                        "rank {} waited {} ms for the process that leads the meeting of the ranks to answer", rank_,
                        options_.timeout_ms);
        return fail(weftTimeout, "rank {} waited {} ms for {}: are all {} ranks started, with this unique id?", rank_,
                    options_.timeout_ms, missing_ranks(), ranks_);
    }
    if (!group_ || now < next_check_us_) return ok();
    // The more ranks look, the less often each does.
    next_check_us_ = now + 50'000 + 4'000 * int64_t(ranks_);
    for (int rank = 0; rank < ranks_; ++rank)
        if (group_->row(rank).state.load(std::memory_order_acquire) == RankState::joined && !group_->alive(rank))
            return fail(weftRemoteError, "rank {} (pid {}) died while the ranks were meeting", rank,
                        group_->row(rank).pid);
    return ok();
}

std::string Meeting::missing_ranks() const {
    std::string list;
    int count = 0;
    for (int rank = 0; rank < ranks_; ++rank)
        if (group_->row(rank).state.load(std::memory_order_acquire) != RankState::joined && ++count <= 16)
            list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
    return fmt::format("{} {}{}", count == 1 ? "rank" : "ranks", list,
                       count > 16 ? fmt::format(" and {} more", count - 16) : "");
}

void Meeting::wait() {
    std::vector<pollfd> list;
    gathering_->descriptors(list);
    if (!list.empty() || !group_) {
        // The leader must also see ranks join in memory, and a guest without an answer must try again.
        poll(list.data(), nfds_t(list.size()), group_ ? 1 : int(slice_ms));
        return;
    }
    auto& joined = group_->header().joined;
    const uint32_t seen = joined.load(std::memory_order_acquire);
    if (int(seen) == ranks_) return;
    const timespec slice{0, slice_ms * 4 * 1'000'000};
    syscall(SYS_futex, &joined, FUTEX_WAIT, seen, &slice, nullptr, 0);
}

}  // namespace weft
