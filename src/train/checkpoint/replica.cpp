#include "src/train/checkpoint/replica.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "src/base/datatype.hpp"
#include "src/base/process_token.hpp"
#include "src/train/checkpoint/delivery.hpp"
#include "src/train/checkpoint/plan.hpp"
#include "src/train/checkpoint/verdict.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

StateCopy copy_of(const HeldCopy& facts, const std::vector<OwnBox>& boxes) {
    StateCopy copy;
    copy.facts = facts;
    size_t bytes = 0;
    for (const OwnBox& box : boxes) bytes += box.facts.bytes();
    copy.data.reserve(bytes);
    for (const OwnBox& box : boxes) {
        StoredBox& stored = copy.boxes.emplace_back(box.facts);
        stored.begin = copy.data.size();
        const auto* const data = static_cast<const std::byte*>(box.data);
        if (stored.bytes() > 0) copy.data.insert(copy.data.end(), data, data + stored.bytes());
    }
    return copy;
}

std::string boxes_text(const std::vector<StoredBox>& boxes, int files) {
    Metadata metadata;
    metadata.file_bytes.resize(size_t(files));
    metadata.boxes = boxes;
    return to_json(metadata);
}

// The boxes of all ranks, one rank after the other.
Result<std::vector<std::vector<StoredBox>>> boxes_in(const std::vector<std::string>& texts) {
    std::vector<std::vector<StoredBox>> all;
    for (size_t rank = 0; rank < texts.size(); ++rank) {
        auto metadata = metadata_of(texts[rank], fmt::format("the message of rank {}", rank));
        if (!metadata) return metadata.take_status();
        all.push_back(std::move(metadata->boxes));
    }
    return all;
}

Result<std::vector<std::vector<StoredBox>>> all_boxes(const Peers& peers, const std::vector<StoredBox>& own) {
    auto texts = all_gather_texts(peers, boxes_text(own, peers.ranks()));
    if (!texts) return texts.take_status();
    return boxes_in(*texts);
}

// Sizes of the messages of a rank.
struct Sizes {
    uint64_t text = 0, data = 0;
};

// Both messages of this rank to each other member, and theirs.
Status exchange_messages(const Peers& peers, const std::vector<int>& members, const std::string& text,
                         const std::vector<std::byte>& data, std::vector<std::string>& texts,
                         std::vector<StateCopy>& copies) {
    WEFT_TRY(called(weftGroupStart()));
    weftResult_t failed = weftSuccess;
    const auto make = [&](weftResult_t result) {
        if (failed == weftSuccess && result != weftInProgress) failed = result;
    };
    const auto send = [&](const void* memory, size_t bytes, int peer) {
        if (bytes > 0) make(weftSend(memory, bytes, weftUint8, peer, peers.comm(), nullptr));
    };
    const auto receive = [&](void* memory, size_t bytes, int peer) {
        if (bytes > 0) make(weftRecv(memory, bytes, weftUint8, peer, peers.comm(), nullptr));
    };
    for (size_t i = 0; i < members.size(); ++i) {
        send(text.data(), text.size(), members[i]);
        receive(texts[i].data(), texts[i].size(), members[i]);
        send(data.data(), data.size(), members[i]);
        receive(copies[i].data.data(), copies[i].data.size(), members[i]);
    }
    const Status refused = called(failed);
    const weftResult_t ended = weftGroupEnd();
    const Status done = finished(ended, peers.comm());
    return refused ? done.copy() : refused.copy();
}

Result<std::vector<HeldCopy>> all_held(const Peers& peers, const std::vector<StateCopy>& held) {
    std::vector<HeldCopy> own;
    for (const StateCopy& copy : held) {
        own.push_back(copy.facts);
        own.back().holder = peers.rank();
    }
    const std::string text(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(HeldCopy));
    const auto texts = all_gather_texts(peers, text);
    if (!texts) return texts.status().copy();
    std::vector<HeldCopy> all;
    for (const std::string& each : *texts) {
        const size_t before = all.size(), count = each.size() / sizeof(HeldCopy);
        all.resize(before + count);
        if (count > 0) memcpy(all.data() + before, each.data(), count * sizeof(HeldCopy));
    }
    return all;
}

// Items that a rank gets: the common ones, and those of its own number.
void add_items(const TensorIndex& index, int rank, std::vector<StoredBox>& wanted) {
    const std::string common = item_name("", -1), own = item_name("", rank);
    for (const auto& [name, boxes] : index.tensors()) {
        if (!name.starts_with(common) && !name.starts_with(own)) continue;
        wanted.push_back(*boxes.front());
        wanted.back().rank = rank;
    }
}

// Adds the items that the reader gets to its boxes.
Status plan_delivery(const TensorIndex& index, int reader, std::vector<StoredBox>& boxes, Delivery& delivery) {
    add_items(index, reader, boxes);
    for (size_t i = 0; i < boxes.size(); ++i) {
        boxes[i].rank = reader;
        auto reads = plan_reads(index, boxes[i], "in memory");
        if (!reads) return reads.take_status();
        delivery.add(reader, std::move(*reads), i);
    }
    return ok();
}

}  // namespace

Status Replica::check_settings(const Peers& peers, Status own, uint64_t version) const {
    WEFT_TRY(common_verdict(peers, std::move(own)));
    const std::string settings = fmt::format("version {}, jump {} and copies {}", version, jump_, copies_);
    const auto all = all_gather_texts(peers, settings);
    if (!all) return all.status().copy();
    const auto other =
        std::find_if(all->begin(), all->end(), [&](const std::string& each) { return each != all->front(); });
    if (other != all->end()) {
        const int rank = int(other - all->begin());
        return fail(error::train_model, "rank 0 saves {} of its state in memory, but rank {} saves {}", all->front(),
                    rank, *other)
            .about({.rank = rank, .peer = 0});
    }
    if (peers.ranks() % (jump_ * copies_) == 0) return ok();
    return fail(error::argument_value, "there are {} ranks, which is no multiple of jump ({}) times copies ({})",
                peers.ranks(), jump_, copies_);
}

Status Replica::check_boxes(const Peers& peers, const std::vector<OwnBox>& boxes) {
    std::vector<StoredBox> own;
    for (const OwnBox& box : boxes) own.push_back(box.facts);
    std::string text = boxes_text(own, peers.ranks());
    const uint64_t known = checked_.rank == peers.rank() && checked_.own == text ? checked_.all : 0;
    std::vector<uint64_t> hashes(size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(&known, hashes.data(), sizeof known));
    // The same boxes of the same ranks as at the last check.
    if (std::all_of(hashes.begin(), hashes.end(), [&](uint64_t each) { return each > 0 && each == hashes[0]; }))
        return ok();
    checked_ = {};
    auto texts = all_gather_texts(peers, text);
    if (!texts) return texts.take_status();
    WEFT_TRY(common_verdict(peers, attempt([&]() -> Status {
                                const auto all = boxes_in(*texts);
                                if (!all) return all.status().copy();
                                return assign_writers(*all).take_status();
                            })));
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const std::string& each : *texts)
        for (const char letter : each) hash = (hash ^ uint8_t(letter)) * 0x100000001b3u;
    checked_ = {peers.rank(), std::move(text), hash};
    return ok();
}

Result<std::vector<StateCopy>> Replica::exchange(const Peers& peers, const StateCopy& own) const {
    const std::string text = boxes_text(own.boxes, peers.ranks());
    const Sizes sizes{text.size(), own.data.size()};
    std::vector<Sizes> all(size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(&sizes, all.data(), sizeof sizes));
    std::vector<int> members = replica_group(peers.ranks(), jump_, copies_, peers.rank());
    std::erase(members, peers.rank());
    std::vector<StateCopy> copies(members.size());
    std::vector<std::string> texts(members.size());
    WEFT_TRY(common_verdict(peers, attempt([&] {
                                for (size_t i = 0; i < members.size(); ++i) {
                                    texts[i].resize(all[size_t(members[i])].text);
                                    copies[i].data.resize(all[size_t(members[i])].data);
                                }
                                return ok();
                            })));
    WEFT_TRY(exchange_messages(peers, members, text, own.data, texts, copies));
    for (size_t i = 0; i < members.size(); ++i) {
        auto metadata = metadata_of(texts[i], fmt::format("the message of rank {}", members[i]));
        if (!metadata) return metadata.take_status();
        copies[i].boxes = std::move(metadata->boxes);
        copies[i].facts = own.facts;
        copies[i].facts.owner = members[i];
    }
    return copies;
}

Result<uint64_t> Replica::draw_id(const Peers& peers) {
    // The process tells it from saves of other ranks, which this rank has not heard of.
    const uint64_t own[] = {saves_, process_token()};
    std::vector<uint64_t> all(2 * size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(own, all.data(), sizeof own));
    for (size_t i = 0; i < all.size(); i += 2) saves_ = std::max(saves_, all[i]);
    return (++saves_ << 32) | uint32_t(all[1]);
}

Status Replica::save(const Peers& peers, Status own, uint64_t version, const std::vector<OwnBox>& boxes) {
    WEFT_TRY(check_settings(peers, std::move(own), version));
    WEFT_TRY(check_boxes(peers, boxes));
    const auto id = draw_id(peers);
    if (!id) return id.status().copy();
    const HeldCopy facts = {version, peers.rank(), peers.ranks(), peers.rank(), 0, *id};
    std::vector<StateCopy> made;
    WEFT_TRY(common_verdict(peers, attempt([&] {
                                made.push_back(copy_of(facts, boxes));
                                return ok();
                            })));
    auto others = exchange(peers, made.front());
    if (!others) return others.take_status();
    std::move(others->begin(), others->end(), std::back_inserter(made));
    Status verdict = common_verdict(peers, ok());
    // If all ranks have come here, the save is whole. Otherwise another rank may know that, so it is kept, too.
    if (verdict) held_.clear();
    std::move(made.begin(), made.end(), std::back_inserter(held_));
    return verdict;
}

std::vector<const StateCopy*> Replica::sources(const Peers& peers, const std::vector<HeldCopy>& chosen) const {
    std::vector<const StateCopy*> found;
    for (const HeldCopy& copy : chosen) {
        if (copy.holder != peers.rank()) continue;
        const auto own = std::find_if(held_.begin(), held_.end(), [&](const StateCopy& each) {
            return each.facts.version == copy.version && each.facts.save == copy.save && each.facts.owner == copy.owner;
        });
        found.push_back(&*own);
    }
    return found;
}

Result<uint64_t> Replica::load(const Peers& peers, Status own, const std::vector<OwnBox>& wanted,
                               const std::function<Status()>& arrive) {
    WEFT_TRY(common_verdict(peers, std::move(own)));
    auto held = all_held(peers, held_);
    if (!held) return held.take_status();
    const auto chosen = choose_copies(std::move(*held));
    if (!chosen) return chosen.status().copy();
    const HeldCopy& loaded = chosen->front();
    WEFT_TRY(deliver(peers, sources(peers, *chosen), wanted));
    WEFT_TRY(common_verdict(peers, arrive()));
    // Later ones are not whole.
    std::erase_if(held_, [&](const StateCopy& copy) {
        return std::pair(copy.facts.version, copy.facts.save) > std::pair(loaded.version, loaded.save);
    });
    return loaded.version;
}

Status Replica::deliver(const Peers& peers, const std::vector<const StateCopy*>& sources,
                        const std::vector<OwnBox>& wanted) {
    Metadata stored;
    std::vector<StoredBox> own;
    size_t begin = 0;
    for (const StateCopy* source : sources) {
        for (StoredBox box : source->boxes) {
            box.rank = peers.rank();
            box.begin += begin;
            own.push_back(std::move(box));
        }
        begin += source->data.size();
    }
    auto all = all_boxes(peers, own);
    if (!all) return all.take_status();
    for (std::vector<StoredBox>& each : *all) std::move(each.begin(), each.end(), std::back_inserter(stored.boxes));
    const TensorIndex index(stored);
    own.clear();
    for (const OwnBox& box : wanted) own.push_back(box.facts);
    auto wishes = all_boxes(peers, own);
    if (!wishes) return wishes.take_status();
    Delivery delivery(peers, sources);
    std::map<std::string, std::vector<std::byte>> items;
    std::vector<void*> memory;  // of this rank's boxes
    // A wish that cannot be fulfilled is the same failure on all ranks. Lack of memory is not.
    WEFT_TRY(common_verdict(peers, attempt([&]() -> Status {
                                for (int reader = 0; reader < peers.ranks(); ++reader)
                                    WEFT_TRY(plan_delivery(index, reader, (*wishes)[size_t(reader)], delivery));
                                delivery.allocate();
                                const std::vector<StoredBox>& boxes = (*wishes)[size_t(peers.rank())];
                                for (const OwnBox& box : wanted) memory.push_back(box.data);
                                for (size_t i = wanted.size(); i < boxes.size(); ++i) {
                                    std::vector<std::byte>& item = items[boxes[i].tensor];
                                    item.resize(boxes[i].bytes());
                                    memory.push_back(item.data());
                                }
                                return ok();
                            })));
    WEFT_TRY(delivery.exchange());
    WEFT_TRY(delivery.unpack((*wishes)[size_t(peers.rank())], memory));
    items_ = std::move(items);
    rank_ = peers.rank();
    return ok();
}

const std::vector<std::byte>* Replica::item(const std::string& name, bool of_rank) const {
    const auto found = items_.find(item_name(name, of_rank ? rank_ : -1));
    return found == items_.end() ? nullptr : &found->second;
}

}  // namespace weft::internal::train
