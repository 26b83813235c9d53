// domain_joining.cpp: how ranks make a domain (domain.hpp): the letters that they write each other, and what is tried.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/executor/cuda/domain_memory.hpp"
#include "src/executor/cuda/finding.hpp"

namespace weft::cuda {

namespace {

// Letters of the stages of making a domain; transports' keys are hashes.
constexpr uint64_t domain_letter_key = 0x6465766963650000u;
enum : int { offers, reached = 16, verified = 32, agreed = 48, second_way = 64 };

// Where other processes find a rank's memory; the address is for ranks of its own.
struct DomainOffer {
    uint64_t address;
    IpcExport exported;
    bool shared;  // `exported` is valid
};
static_assert(sizeof(DomainOffer) <= HostGroup::letter_bytes);

uint32_t own_number(int rank) { return 0x77656674u + uint32_t(rank); }
uint32_t number_between(int from, int to) { return 0x9e3779b9u * uint32_t(from * Domain::ranks_max + to + 1) | 1; }

}  // namespace

Result<std::shared_ptr<SharedWords>> SharedWords::of(const std::shared_ptr<HostGroup>& group, const Context& context) {
    return shared_by_process<SharedWords>(group.get(), [&]() -> Result<std::shared_ptr<SharedWords>> {
        auto words = std::make_shared<SharedWords>();
        words->group_ = group;
        const size_t used = offsetof(HostHeader, abort) + sizeof(AbortRecord), page = page_bytes();
        WEFT_TRY(words->pinned_.pin(context, &group->header(), (used + page - 1) / page * page));
        return words;
    });
}

Result<std::shared_ptr<HostPlaces>> HostPlaces::of(const PeerMemory& where, const Context& context) {
    return shared_by_process<HostPlaces>(
        std::pair(where.process, where.inode), [&]() -> Result<std::shared_ptr<HostPlaces>> {
            auto places = std::make_shared<HostPlaces>();
            auto memory = map_peer_memory(where);
            if (!memory) return memory.take_status();
            places->memory_ = std::move(*memory);
            WEFT_TRY(places->pinned_.pin(context, places->memory_->data(), places->memory_->bytes()));
            return places;
        });
}

Status PinnedPages::pin(const Context& context, void* data, size_t bytes) {
    auto retained = Context::retain(context.driver(), context.device());
    if (!retained) return retained.take_status();
    context_ = std::move(*retained);
    auto pinned = PinnedMemory::pin(context, data, bytes);
    if (!pinned) return pinned.take_status();
    memory_ = std::move(*pinned);
    return ok();
}

Result<CUdeviceptr> PinnedPages::address() const {
    const Driver& driver = context_.driver();
    CUdeviceptr address = 0;
    WEFT_TRY(driver.check(driver.MemHostGetDevicePointer(&address, memory_.data(), 0),
                          "map pinned host memory for a device"));
    return address;
}

uint64_t Domain::key(int stage) const {
    return domain_letter_key + uint64_t(stage) + (detour_.empty() || stage >= agreed ? 0 : second_way);
}
// To everybody of the host: nobody carries letters, all look into their writer's heap.
Status Domain::post(int stage, const void* letter, size_t bytes) {
    return group_->post_letter(rank_, rank_, key(stage), letter, bytes);
}
const std::byte* Domain::find(int peer, int stage) const { return group_->find_letter(peer, key(stage)); }

Places Domain::places() const { return {ranks_, !other_hosts_.empty(), connections_}; }

bool Domain::letters_there(int stage) const {
    for (const int peer : members_)
        if (!find(peer, stage)) return false;
    return true;
}

std::vector<int> Domain::missing() const {
    std::vector<int> ranks;
    if (stage_ == Stage::known) return ranks;
    const bool offering = stage_ == Stage::offering || stage_ == Stage::reaching, abroad = stage_ == Stage::agreeing;
    const int stage = offering ? offers : abroad ? agreed : find(rank_, verified) ? verified : reached;
    for (const int peer : abroad ? other_hosts_ : members_)
        if (!find(peer, stage)) ranks.push_back(peer);
    return ranks;
}

Status Domain::post_finding(int stage, const Status& status, bool root) {
    return in_letters(status, root, [&](int letter, const Finding& finding) {
        return post(stage + letter, &finding, sizeof finding);
    });
}

Domain::Obstacle Domain::first_obstacle(int stage) const {
    for (const bool root : {true, false})
        for (const int peer : members_) {
            const auto* finding = reinterpret_cast<const Finding*>(find(peer, stage));
            if (finding->good || finding->root != root) continue;
            const std::string text = text_of([&](int letter) { return find(peer, stage + letter); });
            return {fmt::format("rank {}: {}", peer, text), root};
        }
    return {};
}

// The host's first rank speaks for all, who have come to the same end.
Status Domain::tell_hosts() {
    if (!leads()) return ok();
    const Status end = obstacle_.empty() ? ok() : Status(weftSystemError, obstacle_);
    for (const int other : other_hosts_)
        WEFT_TRY(in_letters(end, false, [&](int letter, const Finding& finding) {
            return group_->post_letter(rank_, other, key(agreed + letter), &finding, sizeof finding);
        }));
    return ok();
}

// Whether all have spoken: then the obstacle is that of the first host that has one.
bool Domain::hosts_agree() {
    for (const int other : other_hosts_)
        if (!find(other, agreed)) return false;
    std::pair<int, std::string> first{ranks_, {}};
    if (!obstacle_.empty()) first = {members_[0], obstacle_};
    for (const int other : other_hosts_)
        if (!reinterpret_cast<const Finding*>(find(other, agreed))->good && other < first.first)
            first = {other, text_of([&](int letter) { return find(other, agreed + letter); })};
    obstacle_ = first.second;
    return true;
}

Result<bool> Domain::advance() {
    if (stage_ == Stage::known) return true;
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    if (stage_ == Stage::offering && (detour_.empty() || leads() || find(members_[0], offers))) {
        WEFT_TRY(detour_.empty() ? offer() : offer_host_memory());
        stage_ = Stage::reaching;
    }
    if (stage_ == Stage::reaching && letters_there(offers)) {
        WEFT_TRY(reach());
        stage_ = Stage::verifying;
    }
    if (stage_ == Stage::verifying && letters_there(reached)) {
        if (Obstacle obstacle = first_obstacle(reached); !obstacle.text.empty()) {
            conclude(std::move(obstacle));
        } else {
            if (!find(rank_, verified)) WEFT_TRY(verify());
            if (letters_there(verified)) conclude(first_obstacle(verified));
        }
    }
    if (stage_ == Stage::agreeing) {
        if (!told_) WEFT_TRY(tell_hosts());
        told_ = true;
        if (hosts_agree()) stage_ = Stage::known;
    }
    return stage_ == Stage::known;
}

// All ranks come here alike, for they have read the same letters.
void Domain::conclude(Obstacle obstacle) {
    // A device that cannot be used for one thing is of no use for another.
    if (obstacle.text.empty() || obstacle.root || !detour_.empty()) {
        if (!obstacle.text.empty() && !detour_.empty())
            obstacle.text = fmt::format("{}; and through host memory: {}", detour_, obstacle.text);
        obstacle_ = std::move(obstacle.text);
        stage_ = other_hosts_.empty() ? Stage::known : Stage::agreeing;
        return;
    }
    if (leads())
        WEFT_LOG_RANK(rank_, warn, init, "device memory goes through the host's, which is slow: {}", obstacle.text);
    detour_ = std::move(obstacle.text);
    obstacle_.clear();
    stage_ = Stage::offering;
}

// What fails here leaves the communicator without a domain, and not without its host ranks: others hear why.
Status Domain::offer() {
    const Context& context = kernels_->context();
    const Driver& driver = kernels_->driver();
    DomainOffer letter{};
    const Status made = [&]() -> Status {
        if (!obstacle_.empty()) return {weftSystemError, obstacle_};
        auto words = SharedWords::of(group_, context);
        if (!words) return words.take_status();
        shared_words_ = std::move(*words);
        auto abort = shared_words_->abort();
        if (!abort) return abort.take_status();
        abort_ = *abort;
        const Places places = this->places();
        const bool spare = take_spare(places.bytes);
        if (!spare) {
            auto host_words = PinnedMemory::allocate(context, sizeof(HostWords));
            if (!host_words) return host_words.take_status();
            host_words_ = std::move(*host_words);
            if (abroad_bytes() > 0) {
                auto abroad = PinnedMemory::allocate(context, abroad_bytes());
                if (!abroad) return abroad.take_status();
                abroad_ = std::move(*abroad);
            }
        }
        if (abroad_.data()) memset(abroad_.data(), 0, connections_.abroad_words_bytes());
        for (size_t i = 0; i < abroad_ranks_.size(); ++i)
            memset(static_cast<std::byte*>(abroad_.data()) + connections_.abroad_bytes() + i * sizeof(MessageAbroad), 0,
                   offsetof(MessageAbroad, sent_slots));
        memset(host_words_.data(), 0, sizeof(HostWords));
        report_ = &static_cast<HostWords*>(host_words_.data())->report;
        for (Event* event : {&done_, &captured_done_}) {
            auto made = Event::create(context);
            if (!made) return made.take_status();
            *event = std::move(*made);
        }
        auto stream = Stream::create(context);
        if (!stream) return stream.take_status();
        stream_ = std::move(*stream);
        if (!spare) {
            auto memory = DeviceMemory::allocate(context, places.bytes);
            if (!memory) return memory.take_status();
            memory_ = std::move(*memory);
        }
        // But for the slots of messages and what lies behind, of which nothing is read before it was written.
        WEFT_TRY(fill_async(driver, memory_.address(), 0, places.message_slots, stream_.handle()));
        bases_[size_t(rank_)] = memory_.address();
        WEFT_TRY(write_probe());
        if (!one_process()) {
            // Without: the others cannot map it, which is no reason to have no domain.
            auto exported = export_ipc(driver, memory_.address());
            letter.shared = bool(exported);
            if (exported)
                letter.exported = *exported;
            else
                WEFT_LOG_RANK(rank_, info, init, "{}", exported.status().sentence());
        }
        letter.address = memory_.address();
        return ok();
    }();
    if (!made) obstacle_ = made.sentence();
    return post(offers, &letter, sizeof letter);
}

// The second way: one segment for all ranks of the host, the first one's, who offers it first. Whoever offers has
// written its own part.
Status Domain::offer_host_memory() {
    PeerMemory letter{};
    const Status made = [&]() -> Status {
        const size_t each = this->places().programs, bytes = each * members_.size();
        if (leads()) {
            auto memory = SharedMemory::create("weft-device-detour", bytes);
            if (!memory) return memory.take_status();
            host_memory_ = std::move(*memory);
            WEFT_TRY(host_memory_.back(0, bytes));
            letter = {getpid(), host_memory_.fd(), process_token(), host_memory_.inode()};
        } else {
            memcpy(&letter, find(members_[0], offers), sizeof letter);
            if (letter.process == 0) return fail(weftSystemError, "rank {} has no host memory to offer", members_[0]);
        }
        auto places = HostPlaces::of(letter, kernels_->context());
        if (!places) return places.take_status();
        host_places_ = std::move(*places);
        auto address = host_places_->address();
        if (!address) return address.take_status();
        for (size_t place = 0; place < members_.size(); ++place)
            bases_[size_t(members_[place])] = *address + each * place;
        return write_probe();
    }();
    if (!made) {
        obstacle_ = made.sentence();
        letter = {};
    }
    return post(offers, &letter, sizeof letter);
}

// What the others will read and what we shall write there.
Status Domain::write_probe() {
    Probe& probe = static_cast<HostWords*>(host_words_.data())->probe;
    probe = {};
    probe.own = own_number(rank_);
    for (const int peer : members_) probe.given[peer] = number_between(rank_, peer);
    WEFT_TRY(copy_async(kernels_->driver(), bases_[size_t(rank_)] + places().probe,
                        host_words_.address() + offsetof(HostWords, probe), sizeof probe, stream_.handle()));
    return stream_.synchronize();
}

// Now, for a first call may be captured, and a copy would be too.
Status Domain::write_programs() {
    if (connections_.program_bytes() == 0) return ok();
    std::vector<std::byte*> areas;
    for (const CUdeviceptr base : bases_)
        areas.push_back(base ? reinterpret_cast<std::byte*>(base + places().connections) : nullptr);
    const std::vector<std::byte> programs =
        connections_.programs(rank_, areas, reinterpret_cast<std::byte*>(abroad_.address()));
    WEFT_TRY(copy_async(kernels_->driver(), memory_.address() + places().programs,
                        reinterpret_cast<CUdeviceptr>(programs.data()), programs.size(), stream_.handle()));
    return stream_.synchronize();
}

Status Domain::map(int peer) {
    DomainOffer letter;
    memcpy(&letter, find(peer, offers), sizeof letter);
    if (letter.address == 0) return fail(weftSystemError, "rank {} could not offer its device memory", peer);
    const RankRow &own = group_->row(rank_), &row = group_->row(peer);
    const Context& context = kernels_->context();
    if (group_->same_process(rank_, peer)) {
        bases_[size_t(peer)] = letter.address;
        if (row.device.ordinal == own.device.ordinal) return ok();
        auto other = Context::retain(kernels_->driver(), row.device.ordinal);
        if (!other) return other.take_status();
        WEFT_TRY(context.enable_peer(*other));
        peer_contexts_.push_back(std::move(*other));
        return ok();
    }
    if (!letter.shared)
        return fail(weftSystemError, "CUDA does not let other processes map it (its log at INFO has the error)");
    auto mapping = IpcMapping::open(context, letter.exported);
    if (!mapping) return mapping.take_status();
    bases_[size_t(peer)] = mapping->address();
    mappings_.push_back(std::move(*mapping));
    return ok();
}

// By a kernel, as messages will go: copy engines may take another way.
Status Domain::copy_by_kernel(CUdeviceptr to, CUdeviceptr from) {
    KernelArguments arguments{};
    arguments.ranks = 1;
    arguments.op = weftSum;
    arguments.bytes = sizeof(uint32_t);
    arguments.inputs[0] = reinterpret_cast<const std::byte*>(from);
    arguments.receive = reinterpret_cast<std::byte*>(to);
    void* parameters[] = {&arguments};
    return kernels_->copier().launch({.blocks = 1, .threads = 32}, stream_.handle(), parameters);
}

Status Domain::probe(int peer) {
    const CUdeviceptr own = bases_[size_t(rank_)] + places().probe, theirs = bases_[size_t(peer)] + places().probe;
    const size_t word = sizeof(uint32_t);
    WEFT_TRY(copy_by_kernel(own + offsetof(Probe, seen) + word * size_t(peer), theirs + offsetof(Probe, own)));
    return copy_by_kernel(theirs + offsetof(Probe, from) + word * size_t(rank_),
                          own + offsetof(Probe, given) + word * size_t(peer));
}

// Maps what the others offer, reads it, and writes into it.
Status Domain::reach() {
    const Status done = [&]() -> Status {
        if (!obstacle_.empty()) return {weftSystemError, obstacle_};
        for (const int peer : detour_.empty() ? members_ : std::vector<int>())
            if (Status status = map(peer); !status)
                return fail(status.code(), "cannot reach rank {}'s memory: {}", peer, status.sentence());
        for (const int peer : members_)
            if (peer != rank_) WEFT_TRY(probe(peer));
        WEFT_TRY(write_programs());
        WEFT_TRY(stream_.synchronize());
        return ok();
    }();
    if (!done) WEFT_LOG_RANK(rank_, info, init, "no device memory in common: {}", done.sentence());
    return post_finding(reached, done, !obstacle_.empty());
}

// Whether what was read was right, and what the others say they have written is here.
Status Domain::verify() {
    const Status done = [&]() -> Status {
        Probe& probe = static_cast<HostWords*>(host_words_.data())->probe;
        WEFT_TRY(copy_async(kernels_->driver(), host_words_.address() + offsetof(HostWords, probe),
                            bases_[size_t(rank_)] + places().probe, sizeof probe, stream_.handle()));
        WEFT_TRY(stream_.synchronize());
        for (const int peer : members_) {
            if (peer == rank_) continue;
            if (probe.seen[peer] != own_number(peer))
                return fail(weftSystemError, "reads something else where rank {}'s device memory is mapped", peer);
            if (probe.from[peer] != number_between(peer, rank_))
                return fail(weftSystemError, "what rank {} wrote into its device memory did not arrive", peer);
        }
        return ok();
    }();
    if (!done) WEFT_LOG_RANK(rank_, warn, init, "peer access between GPUs does not work: {}", done.sentence());
    return post_finding(verified, done, false);
}

}  // namespace weft::cuda
