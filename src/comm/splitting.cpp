#include "src/comm/splitting.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/segment/failure_record.hpp"

namespace weft::internal {

namespace {

constexpr useconds_t split_nap_us = 50;  // short: this thread may drive other ranks, too

Status check_result(const char* function, weftComm** child) {
    if (!child) return fail(error::argument_null, "{}: newcomm is NULL: pass the address of a weftComm_t", function);
    *child = nullptr;  // the caller may pass it to weftCommDestroy after an error
    return ok();
}

}  // namespace

Splitting::Splitting(weftComm* parent, weftComm** child, Settings settings)
    : parent_(parent), child_(child), settings_(std::move(settings)) {}

Result<std::shared_ptr<Splitting>> Splitting::split(weftComm* parent, int color, int key, weftComm** child,
                                                    const weftConfig_t* config) {
    WEFT_TRY(check_result("weftCommSplit", child));
    const auto communicator = parent->share();
    if (!communicator) return fail(error::argument_communicator, "the communicator was destroyed or aborted before");
    auto settings = settings_of_child(*communicator, config);
    if (!settings) return settings.take_status();
    auto splitting = std::make_shared<Splitting>(parent, child, std::move(*settings));
    splitting->color_ = color;
    splitting->key_ = key;
    if (color >= 0) splitting->hand_out();
    return splitting;
}

Result<std::shared_ptr<Splitting>> Splitting::shrink(weftComm* parent, std::vector<int> excluded, weftComm** child,
                                                     const weftConfig_t* config, bool abort) {
    WEFT_TRY(check_result("weftCommShrink", child));
    const auto communicator = parent->share();
    if (!communicator) return fail(error::argument_communicator, "the communicator was destroyed or aborted before");
    const int ranks = communicator->ranks();
    std::sort(excluded.begin(), excluded.end());
    for (size_t i = 0; i < excluded.size(); ++i) {
        if (excluded[i] < 0 || excluded[i] >= ranks)
            return fail(error::argument_rank,
                        "weftCommShrink: excludeRanksList has rank {}; the communicator has ranks 0 to {}", excluded[i],
                        ranks - 1);
        if (i > 0 && excluded[i] == excluded[i - 1])
            return fail(error::argument_rank, "weftCommShrink: excludeRanksList has rank {} twice", excluded[i]);
        if (excluded[i] == communicator->rank())
            return fail(
                error::argument_rank,
                "weftCommShrink: excludeRanksList has rank {}, which is this rank: excluded ranks must not call it",
                excluded[i]);
    }
    auto settings = settings_of_child(*communicator, config);
    if (!settings) return settings.take_status();
    auto splitting = std::make_shared<Splitting>(parent, child, std::move(*settings));
    splitting->kind_ = abort ? SplitKind::shrink_and_abort : SplitKind::shrink;
    splitting->excluded_ = std::move(excluded);
    splitting->hand_out();
    return splitting;
}

void Splitting::hand_out() {
    if (settings_.options.blocking && !parent_->own_stream) return;
    joining_.hand_out(child_);
}

Status Splitting::begin() {
    Status begun = kind_ == SplitKind::split ? tell() : begin_shrinking();
    if (!begun && joining_.handle) joining_.handle->deliver(begun);
    return begun;
}

// ---- Split

size_t Splitting::word_bytes() const {
    return parent().context().membership ? (sizeof(SplitWord) + 7) / 8 * 8
                                         : sizeof(SplitWord::color) + sizeof(SplitWord::key);
}

Splitting::SplitWord Splitting::word(int rank) const {
    SplitWord word{};
    memcpy(&word, words_.data() + size_t(rank) * word_bytes(), std::min(sizeof word, word_bytes()));
    return word;
}

Status Splitting::tell() {
    SplitWord own{color_, key_, {}};
    if (parent().context().membership) own.root = parent().context().membership->listener_addresses();
    words_.assign(word_bytes() * size_t(parent().ranks()), std::byte{0});
    memcpy(words_.data() + word_bytes() * size_t(parent().rank()), &own, std::min(sizeof own, word_bytes()));
    Call call = gather_entries(Purpose::split, parent().rank(), words_.data(), word_bytes());
    call.settings.timeout_ms = settings_.options.init_timeout_ms;
    call.timeout_set_by = "WEFT_INIT_TIMEOUT_MS";
    WEFT_TRY(parent().begin(call));
    telling_ = true;
    return ok();
}

// All ranks have exchanged their entries: find the ranks of our colour.
Status Splitting::choose_child() {
    Child child;
    child.number = parent().context().children.next_split(color_);
    if (color_ < 0) return ok();
    std::vector<std::pair<int, int>> order;  // key, rank
    for (int rank = 0; rank < parent().ranks(); ++rank)
        if (const SplitWord its = word(rank); its.color == color_) order.emplace_back(its.key, rank);
    std::sort(order.begin(), order.end());
    for (const auto& [key, rank] : order) child.ranks.push_back(rank);
    const net::PackedAddresses root = word(child.ranks[0]).root;
    return begin_joining(std::move(child), root, 0);
}

// ---- Shrink

std::string Splitting::why_aborted() const {
    return fmt::format("rank {} shrinks the communicator (weftCommShrink with WEFT_SHRINK_ABORT)", parent().rank());
}

// Calls in progress in streams may wait for ranks that never come.
void Splitting::announce() {
    if (kind_ == SplitKind::shrink_and_abort)
        (void)FailureRecord(*parent().context().segment)
            .raise(error::abort_remote, parent().rank(), why_aborted(), {.rank = parent().rank()});
}

Status Splitting::begin_shrinking() {
    const Segment& group = *parent().context().segment;
    const bool abort = kind_ == SplitKind::shrink_and_abort;
    if (abort)
        parent().stop(why_aborted());
    else
        WEFT_TRY(parent().usable());
    parent().context().finish_device();
    if (!abort) WEFT_TRY(parent().usable());
    Child child;
    for (int rank = 0; rank < group.ranks(); ++rank)
        if (!std::binary_search(excluded_.begin(), excluded_.end(), rank)) child.ranks.push_back(rank);
    child.number = parent().context().children.next_shrink(excluded_);
    child.again = true;
    // If the remaining ranks are on several hosts, they meet at the process of the first leader that is left.
    const HostInfo* rendezvous_host = nullptr;
    int root_rank = -1;
    for (size_t rank = 0; rank < child.ranks.size() && !group.one_host() && root_rank < 0; ++rank) {
        const RankInfo& info = group.rank_info(child.ranks[rank]);
        rendezvous_host = &group.host_info(info.host);
        if (rendezvous_host->leader == info.pid.load(std::memory_order_acquire)) root_rank = int(rank);
    }
    net::PackedAddresses root{};
    if (root_rank >= 0) memcpy(root.data(), rendezvous_host->listener_addresses, root.size());
    return begin_joining(std::move(child), root, root_rank);
}

// ---- Both

Status Splitting::begin_joining(Child child, const net::PackedAddresses& root, int root_rank) {
    family_ = std::move(child);
    const auto place = std::find(family_.ranks.begin(), family_.ranks.end(), parent().rank());
    joining_.rank = int(place - family_.ranks.begin());
    watch_.emplace(parent(), family_, kind_ == SplitKind::split);
    say_wanted(*parent().context().segment, family_, joining_.rank);
    Status made = make_rendezvous(root, root_rank);
    if (!made) tell_failure(made);
    return made;
}

Status Splitting::make_rendezvous(const net::PackedAddresses& root, int root_rank) {
    const std::shared_ptr<Segment>& group = parent().context().segment;
    if (!joining_.handle) joining_.result = child_;
    joining_.options = settings_.options;
    joining_.options.slots_later = true;
    joining_.same_ranks =
        int(family_.ranks.size()) == parent().ranks() && std::is_sorted(family_.ranks.begin(), family_.ranks.end());
    auto catalog = catalog_for(int(family_.ranks.size()));
    if (!catalog) return catalog.take_status();
    joining_.options.catalog = std::move(*catalog);
    // The files may have changed since the parent was made.
    settings_.rendezvous.proposal.user_algorithms = joining_.options.catalog->digest();
    joining_.timeout_ms = settings_.rendezvous.timeout_ms;
    RendezvousOptions& rendezvous = settings_.rendezvous;
    auto host = host_of(joining_.rank);
    if (!host) return host.take_status();
    rendezvous.host = *host;
    if (const GpuEngine* device = parent().context().device.get()) {
        const DeviceFacts facts = device->facts();
        auto found = GpuEngine::find(facts.use == DeviceFacts::none ? GpuEngine::no_device : facts.ordinal);
        if (!found) return found.take_status();
        joining_.device = std::move(*found);
        if (joining_.device) rendezvous.device = joining_.device->facts();
    }
    if (std::all_of(family_.ranks.begin(), family_.ranks.end(), [&](int rank) { return group->local(rank); })) {
        joining_.rendezvous = std::make_unique<SplitRendezvous>(group, family_, joining_.rank, rendezvous);
        return ok();
    }
    if (root_rank < 0)
        return fail(error::init_leader_lost,
                    "the leading process of every host has ended or is excluded, so the remaining ranks cannot meet: "
                    "make a communicator "
                    "with weftGetUniqueId");
    rendezvous.spread = true;
    rendezvous.roots = joining_.rank == root_rank;
    const UniqueId id = UniqueId::of_child(parent().context().membership->identity().secret, family_.number, root);
    by_id_ = true;
    joining_.rendezvous = std::make_unique<IdRendezvous>(id, int(family_.ranks.size()), joining_.rank, rendezvous);
    return ok();
}

// Informs the other ranks of this host, and those that have joined: they stop waiting for this rank.
void Splitting::tell_failure(const Status& failure) {
    if (family_.number == 0) return;
    if (joining_.rendezvous)
        if (const auto group = joining_.rendezvous->segment()) FailureRecord(*group).raise(failure, joining_.rank);
    say_given_up(*parent().context().segment, family_, joining_.rank);
}

Splitting::~Splitting() {
    if (!joining_.rendezvous) return;
    try {
        tell_failure(
            fail(error::rank_failed, "a rank left while the ranks were making a communicator: its error says why"));
    } catch (...) {  // out of memory: the other ranks wait until their deadline
    }
}

Progress Splitting::advance() {
    if (telling_) {
        const Progress progress = parent().advance();
        if (progress == Progress::failed) failure_ = parent().take_failure();
        if (progress != Progress::done) return progress;
        telling_ = false;
        (void)parent().end();
        failure_ = choose_child();
        return !failure_ ? Progress::failed : joining_.rendezvous ? Progress::moved : Progress::done;
    }
    auto made = weft::internal::advance(joining_);
    if (made && !*made && !joining_.met)
        if (Status obstacle = watch_->look(by_id_); !obstacle) {
            // The last rank may have come meanwhile and gone on, before we saw the parent's end.
            made = weft::internal::advance(joining_);
            if (made && !*made && !joining_.met) {
                tell_failure(obstacle);
                joining_.rendezvous.reset();
                made = std::move(obstacle);
            }
        }
    if (!made) {
        failure_ = made.take_status();
        tell_failure(failure_);
        // A rendezvous by id reports the child's rank numbers.
        if (by_id_) {
            std::vector<int> ascending = family_.ranks;
            std::sort(ascending.begin(), ascending.end());
            failure_ = fail(failure_, "no communicator came of {} of this one, counted anew from 0: {}",
                            ranks_text(ascending), failure_.sentence());
        }
    }
    // Also if this rank failed after the ranks had met: the others go on, and count it.
    if ((!made || *made) && joining_.met && kind_ != SplitKind::split)
        parent().context().children.count_shrink(excluded_);
    return !made ? Progress::failed : *made ? Progress::done : Progress::blocked;
}

Status Splitting::pause(bool may_sleep) {
    if (telling_) return parent().pause(may_sleep);
    // Other ranks may need our windows of the parent before they come.
    if (!parent().dead() && parent().calls().windows().any() && parent().calls().windows().serve()) return ok();
    if (may_sleep && !joining_.met)
        joining_.rendezvous->wait();
    else
        usleep(split_nap_us);
    return ok();
}

}  // namespace weft::internal
