#include "src/rendezvous/id_rendezvous.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/process_token.hpp"
#include "src/control/agreed_texts.hpp"
#include "src/rendezvous/host_rendezvous.hpp"
#include "src/segment/arena.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

namespace {

constexpr int64_t futex_slice_ms = 20;
constexpr int64_t alone_us = 50'000;             // ranks of one host usually need less, without any network
constexpr int64_t client_patience_us = 200'000;  // the leader knows more of the cause, so it reports first

// The more ranks check each other, the less often each does.
constexpr int64_t check_interval_us(int ranks) { return 50'000 + 4'000 * int64_t(ranks); }

// A rank whose source fails still joins: a late rank would wait for it in vain otherwise.
template <class T>
Result<T> found_by(const std::function<Result<T>()>& source) {
    Result<T> answer = source ? source() : T();
    if (!answer) WEFT_LOG(warn, init, "{}; all ranks fail with this when all have joined", answer.status().text());
    return answer;
}

AgreedTexts texts_of_rank_0(const RendezvousOptions& options) {
    AgreedTexts texts;
    auto machine = found_by(options.machine);
    auto tuning = found_by(options.tuning);
    // For one host; if there are several, their leaders describe the machines.
    if (machine) texts.add_machine(std::move(*machine));
    if (tuning) texts.tuning = std::move(*tuning);
    if (machine && tuning) return texts;
    const Status& failed = machine ? tuning.status() : machine.status();
    texts.refusal = fail(failed, "rank 0 (pid {}): {}", getpid(), failed.sentence()).failure();
    return texts;
}

}  // namespace

Status claim_row(Segment& segment, int rank, int ranks, const RendezvousOptions& options, bool backed) {
    if (segment.ranks() != ranks)
        return fail(error::mismatch_ranks,
                    "rank {} (pid {}) was given nranks {}, and the first rank was given {}: all ranks must be given "
                    "the same nranks",
                    rank, getpid(), ranks, segment.ranks());
    WEFT_TRY(Liveness(segment).claim(rank));
    auto arena = Arena::get();
    const CpuSet cpus = allowed_cpus();
    const AgreedTexts texts = rank == 0 ? texts_of_rank_0(options) : AgreedTexts();
    if (!backed) WEFT_TRY(segment.back_rows(rank, 1));
    RankRow& row = segment.row(rank);
    row.pid = getpid();
    row.pid_namespace = pid_namespace();
    row.process = process_token();
    row.token_address = process_token_address();
    row.arena_fd = arena ? (*arena)->memory().fd() : -1;
    row.arena_inode = arena ? (*arena)->memory().inode() : 0;
    row.cpus = cpus;
    row.quota = options.quota;
    row.gpu.facts = options.device;
    if (rank == 0) {
        segment.header().agreed = options.proposal;
        WEFT_TRY(texts.leave(segment));
    }
    segment.rank_info(rank).cpu = cpus.first();
    segment.rank_info(rank).networks = options.networks;
    row.state.store(RankState::joined, std::memory_order_release);
    segment.rank_info(rank).pid.store(row.pid, std::memory_order_release);
    auto& joined = segment.header().joined;
    if (int(joined.fetch_add(1, std::memory_order_acq_rel)) + 1 == ranks)
        syscall(SYS_futex, &joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    segment.doorbell().ring();
    return ok();
}

IdRendezvous::IdRendezvous(const UniqueId& id, int ranks, int rank, const RendezvousOptions& options)
    : id_(id),
      ranks_(ranks),
      rank_(rank),
      options_(options),
      host_rendezvous_(HostRendezvous::of_process(id, options.host, ranks)) {}

IdRendezvous::~IdRendezvous() = default;

Result<bool> IdRendezvous::advance() {
    // The deadline starts here: in a group the thread may prepare other ranks for long before it advances this one.
    if (begun_us_ == 0) {
        begun_us_ = now_us();
        next_check_us_ = begun_us_ + check_interval_us(ranks_);
    }
    auto segment = host_rendezvous_->advance();
    if (!segment) return give_up(segment.take_status());
    if (!segment_ && *segment) segment_ = *segment;
    if (segment_ && !claimed_)
        if (Status status = claim(); !status) return give_up(std::move(status));
    if (all_here()) {
        host_rendezvous_->close();
        if (Status status = segment_->settle(); !status) return give_up(std::move(status));
        if (id_.has_root()) RootRendezvous::release(id_.identity().name);
        return true;
    }
    if (segment_ && !segment_->one_host()) {
        host_rendezvous_->close();
        if (Status status = segment_->settle(); !status) return give_up(std::move(status));
        auto membership = host_rendezvous_->membership();
        if (!membership) return give_up(membership.take_status());
        membership_ = std::move(*membership);
        return true;
    }
    if (segment_ && (options_.spread || host_rendezvous_->foreign() || now_us() - begun_us_ > alone_us)) {
        if (host_rendezvous_->needs_machine()) host_rendezvous_->set_machine(found_by(options_.machine));
        if (Status status = host_rendezvous_->meet_other_hosts(options_.roots || (rank_ == 0 && !options_.spread));
            !status)
            return give_up(std::move(status));
    }
    // A complete communicator stays complete even if others have failed since: the first call reports that.
    if (Status status = check_others(); !status && !complete()) return give_up(std::move(status));
    return false;
}

bool IdRendezvous::all_here() const {
    return segment_ && int(segment_->header().joined.load(std::memory_order_acquire)) == ranks_;
}

bool IdRendezvous::complete() const { return all_here() || (segment_ && !segment_->one_host()); }

Status IdRendezvous::claim() {
    WEFT_TRY(claim_row(*segment_, rank_, ranks_, options_));
    claimed_ = true;
    return ok();
}

// The failure of one rank ends the rendezvous of all, so that no rank waits for it.
Status IdRendezvous::give_up(Status failure) {
    if (segment_) FailureRecord(*segment_).raise(failure, rank_);
    return failure;
}

Status IdRendezvous::check_others() {
    if (segment_ && segment_->aborted()) return FailureRecord(*segment_).status();
    const int64_t now = now_us();
    const int64_t patience_us = host_rendezvous_->leads() || !id_.has_root() ? 0 : client_patience_us;
    if (options_.timeout_ms > 0 && now - begun_us_ > options_.timeout_ms * 1000 + patience_us) return late();
    if (!segment_ || now < next_check_us_) return ok();
    next_check_us_ = now + check_interval_us(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
        if (!died(rank)) continue;
        // A rank that gives up records its error before it releases its lifetime lock.
        if (segment_->aborted()) return FailureRecord(*segment_).status();
        return fail(error::init_rank_died, "rank {} (pid {}) died while the ranks were joining", rank,
                    segment_->rank_info(rank).claimant_pid.load(std::memory_order_acquire))
            .about({.rank = rank, .peer = rank_});
    }
    return ok();
}

Status IdRendezvous::late() const {
    if (!segment_) {
        const int leader = host_rendezvous_->leader_pid();
        return fail(error::init_no_answer, "rank {} waited {} ms for {} to answer{}", rank_, options_.timeout_ms,
                    leader == 0 ? "the process that leads the rendezvous of the ranks"
                                : fmt::format("process {}, which leads the rendezvous of the ranks,", leader),
                    stopped_processes())
            .about({.rank = -1, .peer = rank_});
    }
    // The root knows the missing ranks of all hosts, this host's segment only those of this host.
    const std::string obstacle = host_rendezvous_->obstacle();
    // Ranks that failed before this rank came left no trace here, so the sentence points at their errors.
    return fail(error::init_rank_missing,
                "rank {} waited {} ms for {}: are all {} ranks started, with this unique id? If some have failed "
                "already, their errors say why{}{}",
                rank_, options_.timeout_ms,
                obstacle.empty() || obstacle.starts_with("rank") ? obstacle.empty() ? ranks_text(missing()) : obstacle
                                                                 : ranks_text(missing()) + "; " + obstacle,
                ranks_, stopped_processes(), host_rendezvous_->root_hint())
        .about({.rank = first_missing(), .peer = rank_});
}

// Names the stopped processes among those that this rank waits for.
std::string IdRendezvous::stopped_processes() const {
    std::string text;
    const auto look = [&](int pid, const std::string& whose) {
        if (pid != 0 && process_stopped(pid))
            text += fmt::format("; process {}, {}, is stopped (SIGSTOP or a debugger)", pid, whose);
    };
    look(host_rendezvous_->leader_pid(), "which leads the rendezvous");
    for (int rank = 0; segment_ && rank < ranks_; ++rank)
        if (segment_->rank_info(rank).pid.load(std::memory_order_acquire) == 0)
            look(segment_->rank_info(rank).claimant_pid.load(std::memory_order_acquire), fmt::format("rank {}", rank));
    return text;
}

bool IdRendezvous::died(int rank) const {
    if (Liveness(*segment_).died_joining(rank)) return true;
    // Rows of remote ranks name no process.
    return segment_->rank_info(rank).pid.load(std::memory_order_acquire) != 0 && segment_->one_host() &&
           segment_->row(rank).state.load(std::memory_order_acquire) == RankState::joined &&
           segment_->row(rank).process != 0 && !Liveness(*segment_).alive(rank);
}

std::vector<int> IdRendezvous::missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank)
        if (segment_->rank_info(rank).pid.load(std::memory_order_acquire) == 0) ranks.push_back(rank);
    return ranks;
}

// -1: unknown, because this host has all ranks that it knows of.
int IdRendezvous::first_missing() const {
    const std::vector<int> ranks = missing();
    return ranks.empty() ? -1 : ranks.front();
}

void IdRendezvous::wait() {
    if (host_rendezvous_->wait(segment_ != nullptr)) return;
    auto& joined = segment_->header().joined;
    const uint32_t seen = joined.load(std::memory_order_acquire);
    if (complete()) return;
    const timespec most{0, futex_slice_ms * 1'000'000};
    syscall(SYS_futex, &joined, FUTEX_WAIT, seen, &most, nullptr, 0);
}

}  // namespace weft::internal
