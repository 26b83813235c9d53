#include "src/rendezvous/split_rendezvous.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/control/rank_table.hpp"
#include "src/peer_access/peer_memory.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/first_cause.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

namespace {

constexpr int64_t check_apart_us = 10'000;
constexpr int64_t yield_us = 5'000;  // running ranks join within this time
constexpr useconds_t branch_nap_us = 500;

// One mapping of a child's segment for each process.
Result<std::shared_ptr<Segment>> segment_of(const Segment& parent, uint64_t number,
                                            const std::function<Result<std::shared_ptr<Segment>>()>& make) {
    // The key is not the parent's address: another parent may lie there while a child of this one still lives.
    return shared_by_process<Segment>(std::pair(parent.memory().inode(), number), make);
}

}  // namespace

static SplitRow& split_row_of(const Segment& parent, const Child& child, int rank) {
    return parent.row(child.ranks[size_t(rank)]).split;
}

GivenUp::GivenUp(const Segment& parent, const Child& child) {
    for (int rank = 0; rank < int(child.ranks.size()); ++rank)
        before_.push_back(child.again && parent.local(child.ranks[size_t(rank)]) &&
                          split_row_of(parent, child, rank).failed.load(std::memory_order_acquire) == child.number);
}

int GivenUp::find(const Segment& parent, const Child& child) {
    for (int rank = 0; rank < int(child.ranks.size()); ++rank) {
        if (!parent.local(child.ranks[size_t(rank)])) continue;
        const bool failed = split_row_of(parent, child, rank).failed.load(std::memory_order_acquire) == child.number;
        if (failed && !before_[size_t(rank)]) return child.ranks[size_t(rank)];
        if (!failed) before_[size_t(rank)] = false;
    }
    return -1;
}

void say_given_up(const Segment& parent, const Child& child, int rank) {
    SplitRow& own = split_row_of(parent, child, rank);
    own.wanted.store(0, std::memory_order_release);
    own.offered.store(0, std::memory_order_release);
    // A rank that tries again before the first rank must not read the segment of the failed attempt.
    own.refused.store(0, std::memory_order_release);
    own.fallback.store(0, std::memory_order_release);
    own.failed.store(child.number, std::memory_order_release);
}

void say_wanted(const Segment& parent, const Child& child, int rank) {
    SplitRow& own = split_row_of(parent, child, rank);
    own.refused.store(0, std::memory_order_release);
    own.fallback.store(0, std::memory_order_release);
    own.failed.store(0, std::memory_order_release);
    own.wanted.store(child.number, std::memory_order_release);
}

SplitRendezvous::SplitRendezvous(std::shared_ptr<Segment> parent, Child child, int rank,
                                 const RendezvousOptions& options, bool by_id)
    : parent_(std::move(parent)), child_(std::move(child)), rank_(rank), options_(options), by_id_(by_id) {}

Result<bool> SplitRendezvous::advance() {
    if (fallback_) return fallback_->advance();
    if (begun_us_ == 0) {
        begun_us_ = now_us();
        given_up_.emplace(*parent_, child_);
        say_wanted(*parent_, child_, rank_);
    }
    if (!segment_)
        if (Status status = find_segment(); !status) return give_up(std::move(status));
    if (segment_ && !claimed_) {
        if (Status status = claim_row(*segment_, rank_, int(child_.ranks.size()), options_, true); !status)
            return give_up(std::move(status));
        claimed_ = true;
    }
    if (all_here()) return true;
    // A rank that refuses the segment never joins, so either all ranks take the fallback or none.
    if (split_row(0).refused.load(std::memory_order_acquire) == child_.number) return take_fallback();
    if (Status status = check_others(); !status && !all_here()) return give_up(std::move(status));
    return false;
}

Status SplitRendezvous::find_segment() {
    SplitRow& first = split_row(0);
    const int ranks = int(child_.ranks.size());
    if (rank_ == 0) {
        auto made = segment_of(*parent_, child_.number, [&]() -> Result<std::shared_ptr<Segment>> {
            auto segment = Segment::create(ranks);
            if (segment) WEFT_TRY((*segment)->back_rows(0, ranks));
            return segment;
        });
        if (!made) return made.take_status();
        segment_ = std::move(*made);
        first.fd = segment_->memory().fd();
        first.inode = segment_->memory().inode();
        first.offered.store(child_.number, std::memory_order_release);
    } else if (first.offered.load(std::memory_order_acquire) == child_.number) {
        auto mapped = map_segment();
        if (mapped) {
            segment_ = std::move(*mapped);
        } else {
            WEFT_LOG_RANK(rank_, info, init, "the ranks join by a unique id, since the segment of rank 0 is no use: {}",
                          mapped.status().text());
            first.refused.store(child_.number, std::memory_order_release);
        }
    }
    return ok();
}

Result<std::shared_ptr<Segment>> SplitRendezvous::map_segment() const {
    if (by_id_) return fail(error::shm_peer_memory, "the caller asked for a unique id");
    return segment_of(*parent_, child_.number, [&]() -> Result<std::shared_ptr<Segment>> {
        const RankRow& first = parent_->row(child_.ranks[0]);
        auto fd = open_peer_memory({first.pid, first.split.fd, first.process, first.split.inode});
        if (!fd) return fd.take_status();
        return Segment::map(std::move(*fd));
    });
}

Result<bool> SplitRendezvous::take_fallback() {
    SplitRow& first = split_row(0);
    if (rank_ == 0) {
        auto id = UniqueId::make_local();
        if (!id) return give_up(id.take_status());
        const weftUniqueId bytes = id->bytes();
        memcpy(first.id, &bytes, sizeof bytes);
        first.fallback.store(child_.number, std::memory_order_release);
    } else if (first.fallback.load(std::memory_order_acquire) != child_.number) {
        if (Status status = check_others(); !status) return give_up(std::move(status));
        return false;
    }
    weftUniqueId bytes;
    memcpy(&bytes, first.id, sizeof bytes);
    auto id = UniqueId::read(bytes);
    if (!id) return give_up(id.take_status());
    segment_.reset();
    // All ranks have come by now, so the fallback gets a whole timeout of its own.
    fallback_ = std::make_unique<IdRendezvous>(*id, int(child_.ranks.size()), rank_, options_);
    return false;
}

bool SplitRendezvous::all_here() const {
    return segment_ && segment_->header().joined.load(std::memory_order_acquire) == child_.ranks.size();
}

// The failure of one rank ends the rendezvous of all, so that no rank waits for it.
Status SplitRendezvous::give_up(Status failure) {
    if (segment_) FailureRecord(*segment_).raise(failure, rank_);
    say_given_up(*parent_, child_, rank_);
    return failure;
}

Status SplitRendezvous::check_others() {
    if (segment_ && segment_->aborted()) return FailureRecord(*segment_).status();
    const int64_t now = now_us();
    const int self = child_.ranks[size_t(rank_)];
    if (options_.timeout_ms > 0 && now - begun_us_ > options_.timeout_ms * 1000)
        return fail(error::init_rank_missing,
                    "rank {} waited {} ms for {} to make a communicator from this one: all ranks of the new "
                    "communicator must make the call",
                    child_.ranks[size_t(rank_)], options_.timeout_ms, ranks_text(missing_ranks()))
            .about({.rank = missing_ranks().empty() ? -1 : missing_ranks().front(), .peer = self});
    if (now < next_check_us_) return ok();
    next_check_us_ = now + check_apart_us;
    if (const int other = given_up_->find(*parent_, child_); other >= 0)
        return fail(error::rank_failed, "{} has given up making a communicator from this one: its error says why",
                    parent_->name_of(other))
            .about({.rank = other, .peer = self});
    for (size_t rank = 0; rank < child_.ranks.size(); ++rank) {
        const int old = child_.ranks[rank];
        // A rank that has joined may have destroyed the parent since.
        const bool joined = segment_ && segment_->rank_info(int(rank)).pid.load(std::memory_order_acquire) != 0;
        const bool left = parent_->row(old).state.load(std::memory_order_acquire) == RankState::left;
        if (int(rank) == rank_ ||
            (joined ? Liveness(*segment_).alive(int(rank)) : !left && Liveness(*parent_).alive(old)))
            continue;
        // A rank that gives up records its error before it releases its lifetime lock.
        if (segment_ && segment_->aborted()) return FailureRecord(*segment_).status();
        if (given_up_->find(*parent_, child_) >= 0) return ok();  // the next check reports it
        return first_cause(*parent_,
                           fail(error::init_rank_died, "{} {} while the ranks were making a communicator from this one",
                                parent_->name_of(old), left && !joined ? "left" : "died")
                               .about({.rank = old, .peer = self}),
                           old);
    }
    return ok();
}

// Ranks of the parent that have not made the call. If all have: those that have not joined yet.
std::vector<int> SplitRendezvous::missing_ranks() const {
    std::vector<int> absent, late;
    for (size_t rank = 0; rank < child_.ranks.size(); ++rank) {
        if (split_row(int(rank)).wanted.load(std::memory_order_acquire) != child_.number)
            absent.push_back(child_.ranks[rank]);
        if (!segment_ || segment_->rank_info(int(rank)).pid.load(std::memory_order_acquire) == 0)
            late.push_back(child_.ranks[rank]);
    }
    std::vector<int>& missing = absent.empty() ? late : absent;
    std::sort(missing.begin(), missing.end());
    return missing;
}

void SplitRendezvous::wait() {
    if (fallback_) return fallback_->wait();
    if (now_us() - begun_us_ < yield_us)
        sched_yield();
    else
        usleep(branch_nap_us);
}

}  // namespace weft::internal
