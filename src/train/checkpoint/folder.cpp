#include "src/train/checkpoint/folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"
#include "src/train/checkpoint/data.hpp"
#include "src/train/checkpoint/durable_file.hpp"
#include "src/train/checkpoint/metadata.hpp"
#include "src/train/checkpoint/save_id.hpp"

namespace weft::internal::train {

namespace {

bool has_file(const std::string& file) { return access(file.c_str(), F_OK) == 0; }

Status check_unused(const std::string& folder) {
    if (!has_file(folder + "/" + metadata_name)) return ok();
    return fail(error::train_checkpoint_exists, "{} holds a complete checkpoint already: name another folder", folder);
}

Status check_visible(const std::string& folder, const Metadata& metadata) {
    for (size_t rank = 0; rank < metadata.file_bytes.size(); ++rank) {
        if (open_data(folder, metadata, int(rank))) continue;
        return fail(error::file_unreadable,
                    "rank 0 does not see {}/{} with the {} bytes that rank {} wrote in this save: name one folder on a "
                    "file system that all hosts share",
                    folder, data_file_name(int(rank)), metadata.file_bytes[rank], rank);
    }
    return ok();
}

}  // namespace

std::string absolute(const std::string& folder) {
    std::error_code problem;
    const auto path = std::filesystem::absolute(folder, problem);
    return problem ? folder : path.lexically_normal().string();
}

Result<FolderLock> prepare_folder(const std::string& folder) {
    WEFT_TRY(check_unused(folder));
    std::error_code problem;
    std::vector<std::string> parents;  // of new folders
    for (std::filesystem::path path = folder; !path.empty() && !std::filesystem::exists(path, problem);
         path = path.parent_path())
        parents.push_back(folder_of(path.string()));
    std::filesystem::create_directories(folder, problem);
    if (problem) return fail(error::file_unwritable, "{} could not be made: {}", folder, problem.message());
    for (const std::string& parent : parents) WEFT_TRY(sync_folder(parent));
    auto lock = FolderLock::take(folder);
    if (lock) WEFT_TRY(check_unused(folder));  // another save may have ended meanwhile
    return lock;
}

Status write_metadata(const std::string& folder, const std::string& save, const std::vector<std::string>& parts) {
    Metadata metadata;
    metadata.save = save;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
        auto part = metadata_of(parts[rank], fmt::format("the message of rank {}", rank));
        if (!part) return part.take_status();
        metadata.file_bytes.push_back(part->file_bytes.at(rank));
        std::move(part->boxes.begin(), part->boxes.end(), std::back_inserter(metadata.boxes));
    }
    WEFT_TRY(check_visible(folder, metadata));
    const std::string name = folder + "/" + metadata_name, text = to_json(metadata);
    const std::string draft = draft_of(name, save);
    auto file = DurableFile::create(draft);
    if (!file) return file.take_status();
    Status written = file->write_at(0, text.data(), text.size());
    if (written) written = file->sync();
    if (written) written = sync_folder(folder);   // the names of the data files
    if (written) written = check_unused(folder);  // where file systems have no locks
    const bool renames = bool(written);
    if (renames) written = rename_durably(draft, name);
    if (written) return ok();
    (void)unlink((renames && !has_file(draft) ? name : draft).c_str());
    return written;
}

Result<std::string> read_metadata(const std::string& folder) {
    constexpr size_t bytes_most = size_t(4) << 30;
    const std::string name = folder + "/" + metadata_name;
    struct stat status {};
    if (stat(folder.c_str(), &status) == 0 && !has_file(name))
        return fail(
            error::train_checkpoint_incomplete,
            "{} holds no complete checkpoint, because {} is missing: it is still being written, or its save was "
            "interrupted",
            folder, metadata_name);
    return read_file(name, bytes_most);
}

Result<OpenedCheckpoint> open_alone(const std::string& folder) {
    OpenedCheckpoint opened;
    opened.folder = absolute(folder);
    const auto text = read_metadata(opened.folder);
    if (!text) return text.status().copy();
    WEFT_TRY(opened.read(*text));
    return opened;
}

}  // namespace weft::internal::train
