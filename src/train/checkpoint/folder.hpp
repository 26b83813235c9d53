// folder.hpp: the folder of a checkpoint: its preparation, and its metadata, which is written last.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/checkpoint/folder_lock.hpp"
#include "src/train/checkpoint/plan.hpp"

namespace weft::internal::train {

// For a program that changes its folder while a save is in progress, or before it reads an item.
std::string absolute(const std::string& folder);
// Makes the folder, and takes it for a save. Fails if it holds a complete checkpoint, or if another save writes there.
Result<FolderLock> prepare_folder(const std::string& folder);
// On rank 0, once all data files are on the disk: `parts` are the texts of all ranks' own metadata.
Status write_metadata(const std::string& folder, const std::string& save, const std::vector<std::string>& parts);
// The text of the metadata.
Result<std::string> read_metadata(const std::string& folder);
// A complete checkpoint, by this process alone. Its data files are not checked.
Result<OpenedCheckpoint> open_alone(const std::string& folder);

}  // namespace weft::internal::train
