// reconfigure.cpp: other ranks in a process group that lives on, from torch 2.15 on. Each rank's handle is a unique id of
// Weft; the ranks join by that of the new rank 0.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstring>
#include <set>

#include "backend.hpp"
#include "failure.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace weft_torch {

namespace {

constexpr std::string_view handle_begin = "weft:";

std::string text_of(const weftUniqueId& id) {
    std::string text(handle_begin);
    for (const char each : id.internal) {
        const auto byte = static_cast<unsigned char>(each);
        for (const int nibble : {byte >> 4, byte & 15}) text += "0123456789abcdef"[nibble];
    }
    return text;
}

weftUniqueId id_of(const std::string& text) {
    weftUniqueId id;
    const auto wrong = [&] {
        throw_argument(c10::str("reconfigure: '", text.substr(0, 20), "...' is no handle of Weft; pass texts of ",
                                "get_reconfigure_handle() [argument.unique-id]"));
    };
    if (!text.starts_with(handle_begin) || text.size() != handle_begin.size() + 2 * sizeof id.internal) wrong();
    for (size_t at = 0; at < sizeof id.internal; ++at) {
        const std::string byte = text.substr(handle_begin.size() + 2 * at, 2);
        if (byte.find_first_not_of("0123456789abcdef") != std::string::npos) wrong();
        id.internal[at] = char(std::stoi(byte, nullptr, 16));
    }
    return id;
}

std::vector<std::string> ordered(const c10d::ReconfigureOptions& options) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&options.handles)) return *list;
    const auto& set = std::get<std::unordered_set<std::string>>(options.handles);
    std::vector<std::string> sorted(set.begin(), set.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted;
}

}  // namespace

c10d::ReconfigureHandle Backend::get_reconfigure_handle() const {
    std::lock_guard lock(handle_mutex_);
    if (handle_.empty()) {
        weftUniqueId id;
        check(weftGetUniqueId(&id));
        handle_ = text_of(id);
    }
    return handle_;
}

WorkPtr Backend::reconfigure(const c10d::ReconfigureOptions& options) {
    if (origin_.is_forked() || shut_down_) check_process();
    const std::vector<std::string> handles = ordered(options);
    const std::string own = get_reconfigure_handle();
    const auto found = std::find(handles.begin(), handles.end(), own);
    if (found == handles.end())
        throw_argument(
            "reconfigure: the handles do not contain this rank's; each rank has a new one after reconfigure(), "
            "so exchange get_reconfigure_handle() again [argument.unique-id]");
    if (std::set<std::string>(handles.begin(), handles.end()).size() != handles.size())
        throw_argument("reconfigure: a handle stands twice in the list [argument.rank]");
    if (!options.hints.empty())
        throw_argument(c10::str("reconfigure: Weft knows no hint '", options.hints.begin()->first,
                                "'; pass no hints [option.value]"));
    const weftUniqueId id = id_of(handles[0]);
    if (!uuids_.insert(options.uuid).second)
        throw_argument(c10::str("reconfigure: the uuid ", options.uuid,
                                " was used before; pass a new one on all ranks [argument.value]"));

    leave();
    {
        std::lock_guard lock(handle_mutex_);
        handle_.clear();  // an id serves for one communicator
    }
    const int rank = int(found - handles.begin());
    auto made =
        Communicator::make(id, rank, int(handles.size()), options.timeout.value_or(options_->timeout), settings());
    std::lock_guard lock(channels_mutex_);
    rank_ = rank;
    size_ = int(handles.size());
    store_ = c10::make_intrusive<c10d::PrefixStore>(c10::str("weft/reconfigured/", options.uuid), first_store_);
    communicator_ = std::move(made);
    sequence_ = 0;
    device_numbers_ = std::make_shared<DeviceNumbers>();
    monitored_barriers_ = 0;
    windows_ = 0;
    failure_seen_ = false;
    hooks_->listen();
    ended_ = false;
    return c10::make_intrusive<DoneWork>(rank_, c10d::OpType::UNKNOWN, 0);
}

// Ends the communicator and its messages. Operations in progress fail.
void Backend::leave() {
    if (!communicator_) return;
    hooks_->silence();
    ended_ = true;
    if (!queue_->is_idle()) communicator_->abort();
    queue_->drain();
    end_channels();
    (void)end_devices();
    std::unique_ptr<Communicator> leaving;
    std::lock_guard lock(channels_mutex_);
    leaving.swap(communicator_);
}

}  // namespace weft_torch
#endif
