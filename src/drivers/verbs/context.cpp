#include "src/drivers/verbs/context.hpp"

#include <fcntl.h>
#include <net/if.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"
#include "src/drivers/verbs/interfaces.hpp"
#include "src/drivers/verbs/port_text.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int gids_of_port_most = 1'024, keys_of_port_most = 1'024;
constexpr uint16_t full_member = 0x8000;

struct EventRow {
    int type;
    bool of_port, of_pair;
    const char* text;
};
constexpr EventRow event_rows[] = {
    {event::cq_error, false, false, "a completion queue overran"},
    {event::qp_fatal, false, true, "a queue pair failed"},
    {event::qp_request_error, false, true, "a queue pair got a malformed request"},
    {event::qp_access_error, false, true, "a queue pair got a request without access rights"},
    {event::communication_established, false, true, "a queue pair got its first message"},
    {event::sq_drained, false, true, "a send queue is drained"},
    {event::path_migrated, false, true, "a queue pair moved to its other path"},
    {event::path_migration_error, false, true, "a queue pair could not move to its other path"},
    {event::device_fatal, false, false, "the device failed or was removed"},
    {event::port_active, true, false, "the link is up"},
    {event::port_error, true, false, "the link is down"},
    {event::lid_change, true, false, "the LID changed"},
    {event::pkey_change, true, false, "the partition keys changed"},
    {event::sm_change, true, false, "the subnet manager changed"},
    {event::srq_error, false, false, "a shared receive queue failed"},
    {event::srq_limit, false, false, "a shared receive queue runs low"},
    {event::last_wqe_reached, false, true, "a queue pair took its last shared receive request"},
    {event::client_reregister, true, false, "the subnet manager wants clients to register again"},
    {event::gid_change, true, false, "the GIDs changed"},
    {event::wq_fatal, false, false, "a work queue failed"},
    {event::speed_change, true, false, "the speed changed"},
};

const EventRow* event_row(int type) {
    const auto* row = std::find_if(std::begin(event_rows), std::end(event_rows),
                                   [&](const EventRow& one) { return one.type == type; });
    return row == std::end(event_rows) ? nullptr : row;
}

std::string fixed_text(const char* text, size_t size) { return {text, strnlen(text, size)}; }

bool is_zero(const PortGid& gid) {
    return std::all_of(gid.bytes.begin(), gid.bytes.end(), [](uint8_t byte) { return byte == 0; });
}

// The first line of a file of /sys; empty: there is none.
std::string line_of(const std::string& name) {
    std::string text = system_file(name);
    return text.substr(0, text.find('\n'));
}

// "fe80:0000:...", as the kernel writes GIDs.
bool read_gid(const std::string& text, std::array<uint8_t, 16>& bytes) {
    std::string digits = text;
    std::erase(digits, ':');
    if (digits.size() != 32 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return false;
    for (size_t i = 0; i < 16; ++i) bytes[i] = uint8_t(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
    return true;
}

}  // namespace

std::string Event::text() const {
    const EventRow* row = event_row(type);
    std::string what = row ? row->text : fmt::format("event {}", type);
    if (port != 0) return fmt::format("port {} of {}: {}", port, device, what);
    if (pair != 0) return fmt::format("{}: {} (QP {:#x})", device, what, pair);
    return fmt::format("{}: {}", device, what);
}

Result<DeviceList> DeviceList::read(Functions functions) {
    const StandardNumbers held;  // the library opens device files
    int count = 0;
    errno = 0;
    abi::DeviceRow** rows = functions->ibv_get_device_list(&count);
    if (rows == nullptr)
        return fail(error::verbs_call, "libibverbs lists no devices: {}",
                    errno == ENOSYS || errno == 0 ? "the kernel has no RDMA" : errno_text(errno));
    return DeviceList(std::move(functions), rows, count);
}

DeviceList::DeviceList(DeviceList&& other) noexcept
    : functions_(std::move(other.functions_)), rows_(std::exchange(other.rows_, nullptr)), count_(other.count_) {}

DeviceList::~DeviceList() {
    if (rows_ != nullptr) functions_->ibv_free_device_list(rows_);
}

std::vector<std::string> DeviceList::names() const {
    std::vector<std::string> all;
    for (int i = 0; i < count_ && rows_[i] != nullptr; ++i)
        all.push_back(fixed_text(rows_[i]->name, sizeof rows_[i]->name));
    return all;
}

Result<std::unique_ptr<Context>> DeviceList::open(const std::string& name) const {
    const std::vector<std::string> all = names();
    const auto found = std::find(all.begin(), all.end(), name);
    if (found == all.end()) return fail(error::verbs_device, "there is no RDMA device {}", name);
    abi::DeviceRow* row = rows_[found - all.begin()];
    const StandardNumbers held;
    abi::Context* opened = functions_->ibv_open_device(row);
    if (opened == nullptr)
        return fail(error::verbs_device, "{} cannot be opened: {}; RDMA takes the right to read and write {}", name,
                    errno_text(errno), "/dev/infiniband/" + fixed_text(row->file, sizeof row->file));
    auto attributes = std::make_unique<abi::DeviceAttributes>();
    const int error = functions_->ibv_query_device(opened, attributes.get());
    // The library's reads of events must not block the thread that also serves other descriptors.
    const int flags = fcntl(opened->async_fd, F_GETFL);
    const bool nonblocking = flags >= 0 && fcntl(opened->async_fd, F_SETFL, flags | O_NONBLOCK) == 0;
    if (error != 0 || !nonblocking) {
        const int why = error != 0 ? error : errno;
        functions_->ibv_close_device(opened);
        return fail(error::verbs_device, "{} does not answer: {}", name, errno_text(why));
    }
    DeviceFacts facts{name, fixed_text(row->device_path, sizeof row->device_path), row->transport_type,
                      attributes->ports, attributes->limits};
    return std::unique_ptr<Context>(new Context(functions_, opened, std::move(facts)));
}

Context::~Context() { functions_->ibv_close_device(context_); }

Result<abi::PortAttributes> Context::port(int number) const {
    abi::PortAttributes attributes{};
    if (const int error = functions_->ibv_query_port(context_, uint8_t(number), &attributes))
        return fail(error::verbs_device, "port {} of {} does not answer: {}", number, facts_.name, errno_text(error));
    return attributes;
}

Result<std::vector<PortGid>> Context::gids(int number) const {
    Result<abi::PortAttributes> attributes = port(number);
    if (!attributes) return attributes.take_status();
    const int room = std::clamp(attributes->gids, 0, gids_of_port_most);
    if (functions_->_ibv_query_gid_table == nullptr) return gids_of_files(number, room);
    std::vector<PortGid> all = gids_of_table(number, room);
    // An old kernel, or a table that changed meanwhile.
    return all.empty() ? gids_of_files(number, room) : all;
}

std::vector<PortGid> Context::gids_of_table(int number, int room) const {
    std::vector<abi::GidEntry> table(size_t(std::max(1, room * facts_.ports)));
    const ssize_t count =
        functions_->_ibv_query_gid_table(context_, table.data(), table.size(), 0, sizeof(abi::GidEntry));
    const Interfaces interfaces = Interfaces::read();
    std::vector<PortGid> all;
    for (ssize_t i = 0; i < std::min<ssize_t>(count, ssize_t(table.size())); ++i) {
        const abi::GidEntry& entry = table[size_t(i)];
        if (int(entry.port) != number) continue;
        PortGid gid;
        std::copy(std::begin(entry.gid), std::end(entry.gid), gid.bytes.begin());
        gid.index = int(entry.index);
        gid.type = int(entry.type);
        if (is_zero(gid)) continue;
        interfaces.describe(gid, entry.interface);
        all.push_back(std::move(gid));
    }
    return all;
}

std::vector<PortGid> Context::gids_of_files(int number, int room) const {
    const std::string folder = fmt::format("{}/ports/{}/", facts_.folder, number);
    const Interfaces interfaces = Interfaces::read();
    std::vector<PortGid> all;
    for (int index = 0; index < room; ++index) {
        PortGid gid;
        gid.index = index;
        // Holes cannot be read. Others follow them.
        if (!read_gid(line_of(fmt::format("{}gids/{}", folder, index)), gid.bytes) || is_zero(gid)) continue;
        const std::string type = line_of(fmt::format("{}gid_attrs/types/{}", folder, index));
        gid.type = type == "RoCE v2" ? gid_roce_v2 : type == "IB/RoCE v1" ? gid_roce_v1 : gid_infiniband;
        // The kernel has one text for InfiniBand and for version 1 of RoCE. Only RoCE has a network device.
        if (gid.type == gid_roce_v1 && line_of(folder + "link_layer") == "InfiniBand") gid.type = gid_infiniband;
        interfaces.describe(gid, if_nametoindex(line_of(fmt::format("{}gid_attrs/ndevs/{}", folder, index)).c_str()));
        all.push_back(std::move(gid));
    }
    return all;
}

int Context::mbps(const abi::PortAttributes& attributes, int number) const {
    if (const int known = lanes_mbps(attributes); known > 0) return known;
    // "800 Gb/sec (4X XDR)"
    const std::string rate = line_of(fmt::format("{}/ports/{}/rate", facts_.folder, number));
    double gbps = 0;
    const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), gbps);
    const bool known = error == std::errc() && rate.compare(size_t(end - rate.data()), 7, " Gb/sec") == 0;
    return known && gbps > 0 && gbps < 100'000 ? int(gbps * 1000) : -1;
}

std::vector<uint16_t> Context::pkeys(int number) const {
    std::vector<uint16_t> keys;
    Result<abi::PortAttributes> attributes = port(number);
    if (!attributes) return keys;
    for (int index = 0; index < std::min<int>(attributes->keys, keys_of_port_most); ++index) {
        uint16_t key = 0;  // in network byte order
        const bool there = functions_->ibv_query_pkey(context_, uint8_t(number), index, &key) == 0;
        keys.push_back(there ? __builtin_bswap16(key) : uint16_t(0));
    }
    return keys;
}

Result<int> Context::pkey_index(int number, uint16_t value) const {
    std::string found;
    const std::vector<uint16_t> keys = pkeys(number);
    for (size_t index = 0; index < keys.size(); ++index) {
        if (keys[index] == 0) continue;
        if ((keys[index] | full_member) == (value | full_member)) return int(index);
        found += fmt::format("{}{:#x}", found.empty() ? "" : ", ", keys[index]);
    }
    return fail(error::option_value, "port {} of {} has no partition key {:#x}; it has {}", number, facts_.name, value,
                found.empty() ? "none" : found);
}

int Context::default_pkey_index(int number) const {
    const std::vector<uint16_t> keys = pkeys(number);
    const auto full = std::find_if(keys.begin(), keys.end(), [](uint16_t key) { return (key & full_member) != 0; });
    return full == keys.end() ? 0 : int(full - keys.begin());
}

std::optional<Event> Context::next_event() {
    abi::AsyncEvent event{};
    if (functions_->ibv_get_async_event(context_, &event) != 0) return {};
    Event happened{.type = event.type, .device = facts_.name};
    const EventRow* row = event_row(event.type);
    if (row && row->of_port) happened.port = event.element.port;
    if (row && row->of_pair) happened.pair = event.element.pair->qp_num;
    if (event.type == event::cq_error) happened.queue = event.element.queue;
    functions_->ibv_ack_async_event(&event);
    return happened;
}

}  // namespace weft::internal::verbs
