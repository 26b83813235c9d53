// domain_joining.cpp: how ranks make a domain (domain.hpp): the letters that they write each other, and what is tried.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/executor/cuda/domain_memory.hpp"

namespace weft::cuda {

namespace {

// Letters of the stages of making a domain; transports' keys are hashes.
constexpr uint64_t letter_key = 0x6465766963650000u;
enum : int { offers, reached = 16, verified = 32 };

// Where other processes find a rank's memory; the address is for ranks of its own.
struct Offer {
    uint64_t address;
    IpcExport exported;
    bool shared;  // `exported` is valid
};
// What a rank has found out; `text` says what is wrong.
struct Finding {
    bool good;
    bool root;  // it is this rank that could not offer anything: what the others say follows from that
    char text[94];
    static constexpr size_t piece = sizeof text - 1;
};
constexpr int findings = 4;  // letters that a long text may take
static_assert(sizeof(Offer) <= HostGroup::letter_bytes && sizeof(Finding) <= HostGroup::letter_bytes);

uint32_t own_number(int rank) { return 0x77656674u + uint32_t(rank); }
uint32_t number_between(int from, int to) { return 0x9e3779b9u * uint32_t(from * ranks_max + to + 1) | 1; }

}  // namespace

Result<std::shared_ptr<SharedWords>> SharedWords::of(const std::shared_ptr<HostGroup>& group, const Context& context) {
    struct Known {
        std::mutex mutex;
        std::map<const HostGroup*, std::weak_ptr<SharedWords>> of;
    };
    static PerProcess<Known> of_process;
    Known& known = of_process.get();
    std::lock_guard lock(known.mutex);
    std::erase_if(known.of, [](const auto& entry) { return entry.second.expired(); });
    if (auto there = known.of[group.get()].lock()) return there;
    auto words = std::make_shared<SharedWords>();
    words->group_ = group;
    auto retained = Context::retain(context.driver(), context.device());
    if (!retained) return retained.take_status();
    words->context_ = std::move(*retained);
    const size_t page = size_t(sysconf(_SC_PAGESIZE)), used = offsetof(HostHeader, abort) + sizeof(AbortRecord);
    auto pinned = PinnedMemory::pin(context, &group->header(), (used + page - 1) / page * page);
    if (!pinned) return pinned.take_status();
    words->pinned_ = std::move(*pinned);
    known.of[group.get()] = words;
    return words;
}

Status Domain::post(int stage, const void* letter, size_t bytes) {
    // To everybody: on one host nobody carries letters, all look into their writer's heap.
    return group_->post_letter(rank_, rank_, letter_key + uint64_t(stage), letter, bytes);
}

bool Domain::letters_there(int stage) const {
    for (int peer = 0; peer < ranks_; ++peer)
        if (!group_->find_letter(peer, letter_key + uint64_t(stage))) return false;
    return true;
}

std::vector<int> Domain::missing() const {
    std::vector<int> ranks;
    const auto there = [&](int peer, int stage) {
        return group_->find_letter(peer, letter_key + uint64_t(stage)) != nullptr;
    };
    const int stage = stage_ == Stage::reaching ? offers : there(rank_, verified) ? verified : reached;
    for (int peer = 0; peer < ranks_ && stage_ != Stage::known; ++peer)
        if (!there(peer, stage)) ranks.push_back(peer);
    return ranks;
}

// The first letter comes last: who sees it sees all.
Status Domain::post_finding(int stage, const Status& status, bool root) {
    const std::string& text = status.sentence();
    for (int letter = findings - 1; letter >= 0; --letter) {
        Finding finding{status.ok(), root, {}};
        const size_t from = std::min(text.size(), Finding::piece * size_t(letter));
        finding.text[text.copy(finding.text, Finding::piece, from)] = 0;
        if (letter == 0 || from < text.size()) WEFT_TRY(post(stage + letter, &finding, sizeof finding));
    }
    return ok();
}

std::string Domain::first_obstacle(int stage) const {
    const auto find = [&](int peer, int letter) {
        return reinterpret_cast<const Finding*>(group_->find_letter(peer, letter_key + uint64_t(stage + letter)));
    };
    for (const bool root : {true, false})
        for (int peer = 0; peer < ranks_; ++peer) {
            const Finding* finding = find(peer, 0);
            if (finding->good || finding->root != root) continue;
            std::string text = fmt::format("rank {}: {}", peer, finding->text);
            for (int letter = 1; letter < findings && (finding = find(peer, letter)); ++letter) text += finding->text;
            return text;
        }
    return {};
}

Result<bool> Domain::advance() {
    if (stage_ == Stage::known) return true;
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    if (stage_ == Stage::offering) {
        WEFT_TRY(offer());
        stage_ = Stage::reaching;
    }
    if (stage_ == Stage::reaching && letters_there(offers)) {
        WEFT_TRY(reach());
        stage_ = Stage::verifying;
    }
    if (stage_ == Stage::verifying && letters_there(reached)) {
        if (obstacle_ = first_obstacle(reached); !obstacle_.empty()) {
            stage_ = Stage::known;
            return true;
        }
        if (!group_->find_letter(rank_, letter_key + verified)) WEFT_TRY(verify());
        if (letters_there(verified)) {
            obstacle_ = first_obstacle(verified);
            stage_ = Stage::known;
        }
    }
    return stage_ == Stage::known;
}

// What fails here leaves the communicator without a domain, and not without its host ranks: others hear why.
Status Domain::offer() {
    const Context& context = kernels_->context();
    const Driver& driver = kernels_->driver();
    Offer letter{};
    const Status made = [&]() -> Status {
        auto words = SharedWords::of(group_, context);
        if (!words) return words.take_status();
        shared_words_ = std::move(*words);
        auto abort = shared_words_->abort(driver);
        if (!abort) return abort.take_status();
        abort_ = *abort;
        auto host_words = PinnedMemory::allocate(context, sizeof(HostWords));
        if (!host_words) return host_words.take_status();
        host_words_ = std::move(*host_words);
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
        const Places places(ranks_);
        auto memory = DeviceMemory::allocate(context, places.bytes);
        if (!memory) return memory.take_status();
        memory_ = std::move(*memory);
        WEFT_TRY(fill_async(driver, memory_.address(), 0, memory_.bytes(), stream_.handle()));
        Probe& probe = static_cast<HostWords*>(host_words_.data())->probe;
        probe.own = own_number(rank_);
        for (int peer = 0; peer < ranks_; ++peer) probe.given[peer] = number_between(rank_, peer);
        WEFT_TRY(copy_async(driver, memory_.address() + places.probe,
                            host_words_.address() + offsetof(HostWords, probe), sizeof probe, stream_.handle()));
        WEFT_TRY(stream_.synchronize());
        bool other_processes = false;
        for (int peer = 0; peer < ranks_; ++peer)
            other_processes |= group_->row(peer).process != group_->row(rank_).process;
        if (other_processes) {
            auto exported = export_ipc(driver, memory_.address());
            if (!exported) return exported.take_status();
            letter.exported = *exported;
            letter.shared = true;
        }
        letter.address = memory_.address();
        return ok();
    }();
    if (!made) obstacle_ = made.sentence();
    return post(offers, &letter, sizeof letter);
}

Status Domain::map(int peer) {
    Offer letter;
    memcpy(&letter, group_->find_letter(peer, letter_key + offers), sizeof letter);
    if (letter.address == 0) return fail(weftSystemError, "rank {} could not offer its device memory", peer);
    const RankRow &own = group_->row(rank_), &row = group_->row(peer);
    const Context& context = kernels_->context();
    if (peer == rank_ || row.process == own.process) {
        bases_[size_t(peer)] = letter.address;
        if (row.device.ordinal == own.device.ordinal) return ok();
        auto other = Context::retain(kernels_->driver(), row.device.ordinal);
        if (!other) return other.take_status();
        WEFT_TRY(context.enable_peer(*other));
        peer_contexts_.push_back(std::move(*other));
        return ok();
    }
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
    const CUdeviceptr own = memory_.address() + Places(ranks_).probe,
                      theirs = bases_[size_t(peer)] + Places(ranks_).probe;
    const size_t word = sizeof(uint32_t);
    WEFT_TRY(copy_by_kernel(own + offsetof(Probe, seen) + word * size_t(peer), theirs + offsetof(Probe, own)));
    return copy_by_kernel(theirs + offsetof(Probe, from) + word * size_t(rank_),
                          own + offsetof(Probe, given) + word * size_t(peer));
}

// Maps what the others offer, reads it, and writes into it.
Status Domain::reach() {
    const Status done = [&]() -> Status {
        if (!obstacle_.empty()) return {weftSystemError, obstacle_};
        for (int peer = 0; peer < ranks_; ++peer)
            if (Status status = map(peer); !status)
                return fail(status.code(), "cannot reach rank {}'s memory: {}", peer, status.sentence());
        for (int peer = 0; peer < ranks_; ++peer)
            if (peer != rank_) WEFT_TRY(probe(peer));
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
                            memory_.address() + Places(ranks_).probe, sizeof probe, stream_.handle()));
        WEFT_TRY(stream_.synchronize());
        for (int peer = 0; peer < ranks_; ++peer) {
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
