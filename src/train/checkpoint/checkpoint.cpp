#include "src/train/checkpoint/checkpoint.hpp"

#include <cstring>

#include "src/train/checkpoint/export.hpp"
#include "src/train/checkpoint/folder.hpp"
#include "src/train/checkpoint/save_id.hpp"
#include "src/train/checkpoint/verdict.hpp"

namespace weft::internal::train {

struct Checkpoint::Saving {
    std::string folder, id;
    FolderLock lock;                // on rank 0
    std::vector<StoredBox> boxes;   // that this rank writes
    std::vector<const void*> data;  // of each box: the caller's memory, or its copy
    std::vector<std::unique_ptr<std::byte[]>> copies;

    void copy() {
        for (size_t i = 0; i < boxes.size(); ++i) {
            copies.emplace_back(new std::byte[boxes[i].bytes()]);
            if (boxes[i].bytes() > 0) memcpy(copies[i].get(), data[i], boxes[i].bytes());
            data[i] = copies[i].get();
        }
    }
};

namespace {

// The id of the save and the masks of all ranks, one a line.
std::string text_of(const std::vector<std::vector<bool>>& writers) {
    std::string text = new_save_id() + '\n';
    for (const std::vector<bool>& mask : writers) {
        for (const bool writes : mask) text += writes ? '1' : '0';
        text += '\n';
    }
    return text;
}

std::string line(const std::string& text, int number) {
    size_t begin = 0;
    for (int i = 0; i < number; ++i) begin = text.find('\n', begin) + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
}

Result<std::string> assign(const std::vector<std::string>& offers) {
    std::vector<std::vector<StoredBox>> ranks;
    for (size_t rank = 0; rank < offers.size(); ++rank) {
        auto offer = metadata_of(offers[rank], fmt::format("the message of rank {}", rank));
        if (!offer) return offer.take_status();
        ranks.push_back(std::move(offer->boxes));
    }
    auto writers = assign_writers(ranks);
    if (!writers) return writers.take_status();
    return text_of(*writers);
}

}  // namespace

Result<std::shared_ptr<Checkpoint>> Checkpoint::make(weftComm_t comm) {
    auto peers = Peers::make(comm);
    if (!peers) return peers.take_status();
    return std::shared_ptr<Checkpoint>(new Checkpoint(std::move(*peers)));
}

Status Checkpoint::together(const std::function<Status()>& calls) {
    if (!failure_) return failure_.copy();
    if (peers_->aborted()) return fail(error::train_aborted, "the checkpoint object was aborted");
    try {
        Status status = calls();
        if (status.code() != weftRemoteError && status.code() != weftTimeout) return status;
        failure_ = status.copy();
        peers_->abort();
        return status;
    } catch (...) {
        failure_ = fail(error::train_aborted, "an exception has ended the checkpoint object");
        peers_->abort();
        throw;
    }
}

Status Checkpoint::save(Status own, const std::string& folder, std::vector<OwnBox> boxes, bool in_background) {
    Status earlier = wait();
    if (own) own = std::move(earlier);
    const auto saving = std::make_shared<Saving>();
    saving->folder = absolute(folder);
    WEFT_TRY(together([&] { return choose(*saving, std::move(own), std::move(boxes)); }));
    std::unique_ptr<LaunchQueue> queue;
    Status staged = attempt([&]() -> Status {
        if (!in_background) return ok();
        auto started = LaunchQueue::start();
        if (!started) return started.take_status();
        queue = std::move(*started);
        saving->copy();
        return ok();
    });
    // Also if the save is not in the background: other ranks may save in another mode.
    WEFT_TRY(together([&] { return common_verdict(*peers_, std::move(staged)); }));
    if (!in_background) return together([&] { return write(*saving); });
    queue_ = std::move(queue);
    queue_->add([this, saving] { return together([&] { return write(*saving); }); });
    return ok();
}

bool Checkpoint::done() { return !queue_ || queue_->done(1); }

Status Checkpoint::wait() {
    if (!queue_) return ok();
    Status status = queue_->wait();
    queue_.reset();
    return status;
}

Status Checkpoint::choose(Saving& saving, Status own, std::vector<OwnBox> boxes) const {
    if (own && peers_->rank() == 0) {
        auto lock = prepare_folder(saving.folder);
        if (lock)
            saving.lock = std::move(*lock);
        else
            own = lock.take_status();
    }
    WEFT_TRY(common_verdict(*peers_, std::move(own)));
    Metadata offer;
    offer.file_bytes = {0};
    for (OwnBox& box : boxes) offer.boxes.push_back(box.facts);
    auto offers = gather_texts(*peers_, to_json(offer));
    if (!offers) return offers.take_status();
    Status assigned;
    std::string masks;
    if (peers_->rank() == 0) {
        auto text = assign(*offers);
        if (text)
            masks = std::move(*text);
        else
            assigned = text.take_status();
    }
    WEFT_TRY(common_verdict(*peers_, std::move(assigned)));
    auto all = broadcast_text(*peers_, std::move(masks));
    if (!all) return all.take_status();
    saving.id = line(*all, 0);
    const std::string mask = line(*all, 1 + peers_->rank());
    for (size_t i = 0; i < boxes.size(); ++i)
        if (mask[i] == '1') {
            saving.boxes.push_back(std::move(boxes[i].facts));
            saving.data.push_back(boxes[i].data);
        }
    return ok();
}

Status Checkpoint::write(Saving& saving) const {
    const FolderLock lock = std::move(saving.lock);  // until its end
    Metadata part;
    Status own = attempt([&]() -> Status {
        auto bytes = write_data(saving.folder, saving.id, peers_->rank(), saving.boxes, saving.data);
        if (!bytes) return bytes.take_status();
        part.file_bytes.resize(size_t(peers_->ranks()));
        part.file_bytes[size_t(peers_->rank())] = *bytes;
        part.boxes = saving.boxes;
        return ok();
    });
    // Room for the next attempt.
    const auto without_data = [&](Status failure) {
        remove_data(saving.folder, saving.id, peers_->rank());
        return failure;
    };
    // Rank 0 cannot have written metadata without this rank.
    if (Status verdict = common_verdict(*peers_, std::move(own)); !verdict) return without_data(std::move(verdict));
    auto parts = gather_texts(*peers_, to_json(part));
    if (!parts) return parts.take_status();
    Status complete;
    if (peers_->rank() == 0) complete = attempt([&] { return write_metadata(saving.folder, saving.id, *parts); });
    Status verdict = common_verdict(*peers_, std::move(complete));
    // If a rank was lost, rank 0 may have written it.
    if (verdict || verdict.code() == weftRemoteError || verdict.code() == weftTimeout) return verdict;
    return without_data(std::move(verdict));
}

Result<OpenedCheckpoint> Checkpoint::open(Status own, const std::string& given) const {
    OpenedCheckpoint opened;
    opened.folder = absolute(given);
    const std::string& folder = opened.folder;
    std::string text;
    if (own && peers_->rank() == 0) {
        auto read = read_metadata(folder);
        if (read)
            text = std::move(*read);
        else
            own = read.take_status();
    }
    WEFT_TRY(common_verdict(*peers_, std::move(own)));
    auto all = broadcast_text(*peers_, std::move(text));
    if (!all) return all.take_status();
    WEFT_TRY(opened.read(*all));
    // Each rank looks at its share of the data files.
    Status files;
    for (int rank = peers_->rank(); rank < opened.ranks() && files; rank += peers_->ranks())
        files = open_data(folder, opened.metadata, rank).take_status();
    WEFT_TRY(common_verdict(*peers_, std::move(files)));
    return opened;
}

Status Checkpoint::load(Status own, const std::string& folder, const std::vector<OwnBox>& boxes,
                        const std::function<Status()>& arrive) {
    Status earlier = wait();
    if (own) own = std::move(earlier);
    return together([&]() -> Status {
        auto opened = open(std::move(own), folder);
        if (!opened) return opened.take_status();
        std::vector<std::vector<Read>> plans;
        Status planned;
        for (size_t i = 0; i < boxes.size() && planned; ++i) {
            auto plan = plan_reads(opened->index, boxes[i].facts, opened->folder);
            if (plan)
                plans.push_back(std::move(*plan));
            else
                planned = plan.take_status();
        }
        WEFT_TRY(common_verdict(*peers_, std::move(planned)));
        DataReader reader(opened->folder, opened->metadata);
        Status own_reads = attempt([&]() -> Status {
            for (size_t i = 0; i < boxes.size(); ++i)
                for (const Read& each : plans[i]) WEFT_TRY(reader.read(each, boxes[i].facts.box, boxes[i].data));
            return arrive();
        });
        WEFT_TRY(common_verdict(*peers_, std::move(own_reads)));
        loaded_ = std::move(*opened);
        return ok();
    });
}

Result<const StoredBox*> Checkpoint::item(const std::string& name) const {
    const TensorIndex::Boxes* const boxes = loaded_.index.find(name);
    if (boxes) return boxes->front();
    if (loaded_.folder.empty())
        return fail(error::train_checkpoint_model, "no checkpoint is loaded: call weftTrainCheckpointLoad first");
    return fail(error::train_checkpoint_model, "the checkpoint {}, which {} ranks wrote, has no \"{}\"", loaded_.folder,
                stored_ranks(), name);
}

Result<size_t> Checkpoint::item_bytes(const std::string& name) const {
    auto found = item(name);
    if (!found) return found.take_status();
    return (*found)->bytes();
}

Status Checkpoint::read_item(const std::string& name, void* data) const {
    auto found = item(name);
    if (!found) return found.take_status();
    const StoredBox& stored = **found;
    return DataReader(loaded_.folder, loaded_.metadata).read({&stored, stored.box}, stored.box, data);
}

Status Checkpoint::export_file(Status own, const std::string& folder, const std::string& prefix,
                               const std::string& file) {
    Status earlier = wait();
    if (own) own = std::move(earlier);
    return together([&]() -> Status {
        auto opened = open(std::move(own), folder);
        if (!opened) return opened.take_status();
        return export_tensors(*peers_, *opened, prefix, file);
    });
}

}  // namespace weft::internal::train
