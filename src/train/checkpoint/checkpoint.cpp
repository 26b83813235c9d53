#include "src/train/checkpoint/checkpoint.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/base/file.hpp"
#include "src/train/checkpoint/durable_file.hpp"
#include "src/train/checkpoint/export.hpp"
#include "src/train/checkpoint/verdict.hpp"

namespace weft::internal::train {

struct Checkpoint::Saving {
    std::string folder;
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

Status prepare_folder(const std::string& folder) {
    if (access((folder + "/" + metadata_name).c_str(), F_OK) == 0)
        return fail(error::train_checkpoint_exists, "{} holds a complete checkpoint already: name another folder",
                    folder);
    std::error_code problem;
    std::vector<std::string> parents;  // of new folders
    for (std::filesystem::path path = folder; !path.empty() && !std::filesystem::exists(path, problem);
         path = path.parent_path())
        parents.push_back(folder_of(path.string()));
    std::filesystem::create_directories(folder, problem);
    if (problem) return fail(error::file_unwritable, "{} could not be made: {}", folder, problem.message());
    for (const std::string& parent : parents) WEFT_TRY(sync_folder(parent));
    return ok();
}

// For a program that changes its folder while a save is in progress, or before it reads an item.
std::string absolute(const std::string& folder) {
    std::error_code problem;
    const auto path = std::filesystem::absolute(folder, problem);
    return problem ? folder : path.lexically_normal().string();
}

Status check_visible(const std::string& folder, const Metadata& metadata) {
    for (size_t rank = 0; rank < metadata.file_bytes.size(); ++rank) {
        const std::string name = folder + "/" + data_file_name(int(rank));
        struct stat status {};
        if (stat(name.c_str(), &status) == 0 && uint64_t(status.st_size) == metadata.file_bytes[rank]) continue;
        return fail(
            error::file_unreadable,
            "rank 0 does not see {} with the {} bytes that rank {} wrote: name one folder on a file system that "
            "all hosts share",
            name, metadata.file_bytes[rank], rank);
    }
    return ok();
}

// On rank 0, once all data files are on the disk.
Status write_metadata(const std::string& folder, const std::vector<std::string>& parts) {
    Metadata metadata;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
        auto part = metadata_of(parts[rank], fmt::format("the message of rank {}", rank));
        if (!part) return part.take_status();
        metadata.file_bytes.push_back(part->file_bytes.at(rank));
        std::move(part->boxes.begin(), part->boxes.end(), std::back_inserter(metadata.boxes));
    }
    WEFT_TRY(check_visible(folder, metadata));
    const std::string name = folder + "/" + metadata_name, draft = name + ".partial", text = to_json(metadata);
    auto file = DurableFile::create(draft);
    if (!file) return file.take_status();
    Status written = file->write_at(0, text.data(), text.size());
    if (written) written = file->sync();
    if (written) written = sync_folder(folder);  // the names of the data files
    if (written) written = rename_durably(draft, name);
    if (!written)
        for (const std::string& each : {draft, name}) (void)unlink(each.c_str());
    return written;
}

Result<std::string> read_metadata(const std::string& folder) {
    constexpr size_t bytes_most = size_t(4) << 30;
    const std::string name = folder + "/" + metadata_name;
    struct stat status {};
    if (stat(folder.c_str(), &status) == 0 && access(name.c_str(), F_OK) != 0)
        return fail(
            error::train_checkpoint_incomplete,
            "{} holds no complete checkpoint, because {} is missing: it is still being written, or its save was "
            "interrupted",
            folder, metadata_name);
    return read_file(name, bytes_most);
}

// The masks of all ranks, one a line.
std::string text_of(const std::vector<std::vector<bool>>& writers) {
    std::string text;
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

Result<std::shared_ptr<Checkpoint>> Checkpoint::make(weftComm_t comm, int device) {
    auto peers = Peers::make(comm);
    if (!peers) return peers.take_status();
    return std::shared_ptr<Checkpoint>(new Checkpoint(std::move(*peers), device));
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
    if (own && peers_->rank() == 0) own = prepare_folder(saving.folder);
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
    const std::string mask = line(*all, peers_->rank());
    for (size_t i = 0; i < boxes.size(); ++i)
        if (mask[i] == '1') {
            saving.boxes.push_back(std::move(boxes[i].facts));
            saving.data.push_back(boxes[i].data);
        }
    return ok();
}

Status Checkpoint::write(Saving& saving) const {
    Metadata part;
    Status own = attempt([&]() -> Status {
        auto bytes = write_data(saving.folder, peers_->rank(), saving.boxes, saving.data);
        if (!bytes) return bytes.take_status();
        part.file_bytes.resize(size_t(peers_->ranks()));
        part.file_bytes[size_t(peers_->rank())] = *bytes;
        part.boxes = saving.boxes;
        return ok();
    });
    // Room for the next attempt.
    const auto without_data = [&](Status failure) {
        (void)unlink((saving.folder + "/" + data_file_name(peers_->rank())).c_str());
        return failure;
    };
    // Rank 0 cannot have written metadata without this rank.
    if (Status verdict = common_verdict(*peers_, std::move(own)); !verdict) return without_data(std::move(verdict));
    auto parts = gather_texts(*peers_, to_json(part));
    if (!parts) return parts.take_status();
    Status complete;
    if (peers_->rank() == 0) complete = attempt([&] { return write_metadata(saving.folder, *parts); });
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
    auto metadata = metadata_of(*all, folder + "/" + metadata_name);
    if (!metadata) return metadata.take_status();
    opened.metadata = std::move(*metadata);
    opened.index = TensorIndex(opened.metadata);
    return opened;
}

Status Checkpoint::load(Status own, const std::string& folder, const std::vector<OwnBox>& boxes) {
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
            return ok();
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
