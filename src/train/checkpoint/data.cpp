#include "src/train/checkpoint/data.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/datatype.hpp"
#include "src/train/checkpoint/checksum.hpp"
#include "src/train/checkpoint/durable_file.hpp"

namespace weft::internal::train {

namespace {

size_t block_bytes_at(const StoredBox& box, size_t index) {
    return std::min(checksum_block_bytes, box.bytes() - index * checksum_block_bytes);
}

Status write_boxes(DurableFile& file, const std::string& header, std::vector<StoredBox>& boxes,
                   const std::vector<const void*>& data, uint64_t& place) {
    WEFT_TRY(file.write_at(0, header.data(), header.size()));
    place = header.size();
    for (size_t i = 0; i < boxes.size(); ++i) {
        const auto* const memory = static_cast<const std::byte*>(data[i]);
        const size_t bytes = boxes[i].bytes();
        boxes[i].begin = place;
        boxes[i].checksums.clear();
        for (size_t begin = 0; begin < bytes; begin += checksum_block_bytes) {
            const size_t count = std::min(checksum_block_bytes, bytes - begin);
            boxes[i].checksums.push_back(crc32c(memory + begin, count));
            WEFT_TRY(file.write_at(place + begin, memory + begin, count));
        }
        place += bytes;
    }
    return file.sync();
}

bool is_of_save(const Fd& file, const std::string& save) {
    constexpr off_t length_bytes = 8;  // of the header, before its text
    const std::string wanted = header_begin(save);
    std::string found(wanted.size(), '\0');
    return pread(file.number(), found.data(), found.size(), length_bytes) == ssize_t(found.size()) && found == wanted;
}

}  // namespace

Result<uint64_t> write_data(const std::string& folder, const std::string& save, int rank, std::vector<StoredBox>& boxes,
                            const std::vector<const void*>& data) {
    const std::string name = folder + "/" + data_file_name(rank);
    auto file = DurableFile::create(name);
    if (!file) return file.take_status();
    for (StoredBox& box : boxes) box.rank = rank;
    uint64_t bytes = 0;
    Status written = write_boxes(*file, safetensors_header(boxes, save), boxes, data, bytes);
    if (written) return bytes;
    (void)unlink(name.c_str());
    return written;
}

Status DataReader::read(const Read& read, const Box& wanted, void* memory) {
    const StoredBox& stored = *read.stored;
    const size_t element = size_of(stored.type);
    return for_each_run(read.part, stored.box, wanted, [&](size_t from, size_t to, size_t count) -> Status {
        size_t begin = from * element;
        const size_t end = begin + count * element;
        auto* target = static_cast<std::byte*>(memory) + to * element;
        while (begin < end) {
            const size_t index = begin / checksum_block_bytes, within = begin % checksum_block_bytes;
            const size_t block = block_bytes_at(stored, index);
            const size_t bytes = std::min(end - begin, block - within);
            if (bytes == block) {
                WEFT_TRY(read_block(stored, index, target));
            } else {
                if (block_.stored != &stored || block_.index != index) {
                    block_.stored = nullptr;
                    block_.data.resize(checksum_block_bytes);
                    WEFT_TRY(read_block(stored, index, block_.data.data()));
                    block_.stored = &stored;
                    block_.index = index;
                }
                memcpy(target, block_.data.data() + within, bytes);
            }
            begin += bytes;
            target += bytes;
        }
        return ok();
    });
}

Status DataReader::read_block(const StoredBox& stored, size_t index, std::byte* to) {
    const size_t bytes = block_bytes_at(stored, index);
    WEFT_TRY(read_bytes(stored, index * checksum_block_bytes, bytes, to));
    if (index < stored.checksums.size() && crc32c(to, bytes) == stored.checksums[index]) return ok();
    return fail(error::train_checkpoint_damaged,
                "{}/{} is damaged: the checksum of \"{}\" {} differs. Load an older checkpoint", folder_,
                data_file_name(stored.rank), stored.tensor, text_of(stored.box));
}

Status DataReader::read_bytes(const StoredBox& stored, size_t begin, size_t bytes, std::byte* to) {
    auto file = open(stored.rank);
    if (!file) return file.take_status();
    uint64_t place = stored.begin + begin;
    while (bytes > 0) {
        const ssize_t count = pread((*file)->number(), to, bytes, off_t(place));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0)
            return fail(error::file_unreadable, "{}/{} could not be read: {}", folder_, data_file_name(stored.rank),
                        errno_text(errno));
        if (count == 0)
            return fail(error::train_checkpoint_damaged, "{}/{} ends in the middle of \"{}\". Load an older checkpoint",
                        folder_, data_file_name(stored.rank), stored.tensor);
        to += count;
        place += uint64_t(count);
        bytes -= size_t(count);
    }
    return ok();
}

Result<const Fd*> DataReader::open(int rank) {
    constexpr size_t files_most = 256;  // fewer than a process may open
    const auto known = files_.find(rank);
    if (known != files_.end()) return &known->second;
    auto file = open_data(folder_, metadata_, rank);
    if (!file) return file.take_status();
    if (files_.size() == files_most) files_.clear();
    return &(files_[rank] = std::move(*file));
}

void remove_data(const std::string& folder, const std::string& save, int rank) {
    const std::string name = folder + "/" + data_file_name(rank);
    const Fd file = Fd::open(name, O_RDONLY);
    if (file && is_of_save(file, save)) (void)unlink(name.c_str());
}

Result<Fd> open_data(const std::string& folder, const Metadata& metadata, int rank) {
    const std::string name = folder + "/" + data_file_name(rank);
    Fd file = Fd::open(name, O_RDONLY);
    if (!file) return fail(error::file_unreadable, "{} could not be read: {}", name, no_descriptor_text(errno));
    struct stat status {};
    if (fstat(file.number(), &status) != 0)
        return fail(error::file_unreadable, "{} could not be read: {}", name, errno_text(errno));
    const uint64_t wanted = metadata.file_bytes[size_t(rank)];
    if (uint64_t(status.st_size) != wanted)
        return fail(error::train_checkpoint_damaged,
                    "{} has {} bytes, but the checkpoint's metadata says {}. Load an older checkpoint", name,
                    status.st_size, wanted);
    if (!is_of_save(file, metadata.save))
        return fail(
            error::train_checkpoint_damaged,
            "{} is no file of save {}, to which the checkpoint's metadata belongs. Files of two saves are mixed, "
            "or ranks named different folders",
            name, metadata.save);
    return file;
}

}  // namespace weft::internal::train
