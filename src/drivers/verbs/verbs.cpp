#include "src/drivers/verbs/verbs.hpp"

#include <string.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "src/base/fd.hpp"
#include "src/drivers/verbs/functions.hpp"
#include "src/drivers/verbs/port_text.hpp"

namespace weft::internal::verbs {

using abi::DeviceAttributes, abi::DeviceRow, abi::Domain, abi::GidEntry, abi::PortAttributes, abi::Region;

namespace {

constexpr int devices_most = 1'024;
constexpr int gids_most = 1'024;  // of a device

template <size_t size>
std::string text_of(const char (&text)[size]) {
    return {text, strnlen(text, size)};
}

class OpenDevice {
  public:
    OpenDevice(const abi::Functions& functions, DeviceRow* row)
        : functions_(functions),
          file_("/dev/infiniband/" + text_of(row->file)),
          context_(functions.ibv_open_device(row)),
          error_(errno) {}
    OpenDevice(const OpenDevice&) = delete;
    OpenDevice& operator=(const OpenDevice&) = delete;
    ~OpenDevice() {
        if (context_ != nullptr) functions_.ibv_close_device(context_);
    }

    void describe(RdmaDevice& device) {
        if (context_ == nullptr) {
            device.refused = fmt::format("{} cannot be opened: {}; RDMA takes the right to read and write {}",
                                         device.name, errno_text(error_), file_);
            return;
        }
        auto attributes = std::make_unique<DeviceAttributes>();
        if (const int error = functions_.ibv_query_device(context_, attributes.get())) {
            device.refused = fmt::format("{} does not answer: {}", device.name, errno_text(error));
            return;
        }
        const bool none = std::all_of(std::begin(attributes->system_guid), std::end(attributes->system_guid),
                                      [](uint8_t byte) { return byte == 0; });
        memcpy(device.guid.data(), none ? attributes->node_guid : attributes->system_guid, device.guid.size());
        device.dma_buf = registers_dma_buf();
        int gids = 0;
        for (int number = 1; number <= attributes->ports; ++number) gids += add_port(number, device);
        add_gids(std::min(gids, gids_most), device);
    }

  private:
    // The capacity of the GID table.
    int add_port(int number, RdmaDevice& device) {
        PortAttributes found{};
        RdmaPort& port = device.ports.emplace_back();
        port.number = number;
        if (const int error = functions_.ibv_query_port(context_, uint8_t(number), &found)) {
            port.refused = fmt::format("port {} of {} does not answer: {}", number, device.name, errno_text(error));
            return 0;
        }
        port.state = port_state_text(found.state);
        port.active = is_active(found.state);
        if (port.active) port.mbps = lanes_mbps(found);
        port.link_layer = found.link_layer == 1 ? "InfiniBand" : found.link_layer == 2 ? "Ethernet" : "";
        return std::clamp(found.gids, 0, gids_most);
    }
    void add_gids(int room, RdmaDevice& device) {
        if (room == 0) return;
        const auto add = [&device](uint32_t port, const uint8_t(&gid)[16], bool roce_v2) {
            const bool none = std::all_of(std::begin(gid), std::end(gid), [](uint8_t byte) { return byte == 0; });
            if (none || port < 1 || port > device.ports.size()) return;
            Gid& added = device.ports[port - 1].gids.emplace_back();
            memcpy(added.bytes.data(), gid, added.bytes.size());
            added.roce_v2 = roce_v2;
        };
        if (functions_._ibv_query_gid_table != nullptr) {
            std::vector<GidEntry> table(static_cast<size_t>(room));
            const ssize_t count =
                functions_._ibv_query_gid_table(context_, table.data(), table.size(), 0, sizeof(GidEntry));
            for (ssize_t i = 0; i < std::min<ssize_t>(count, room); ++i)
                add(table[size_t(i)].port, table[size_t(i)].gid, table[size_t(i)].type == 2);
            if (count >= 0) return;
        }
        if (functions_.ibv_query_gid == nullptr) return;
        for (const RdmaPort& port : device.ports)
            for (int index = 0; index < room; ++index) {
                uint8_t gid[16] = {};
                if (functions_.ibv_query_gid(context_, uint8_t(port.number), index, gid) != 0) break;
                add(uint32_t(port.number), gid, false);
            }
    }
    // An invalid descriptor: a kernel that knows dma-buf answers EBADF, others answer that it is not supported.
    std::optional<bool> registers_dma_buf() {
        if (!functions_.ibv_reg_dmabuf_mr || !functions_.ibv_alloc_pd || !functions_.ibv_dealloc_pd) return false;
        Domain* domain = functions_.ibv_alloc_pd(context_);
        if (domain == nullptr) return {};
        errno = 0;
        Region* region = functions_.ibv_reg_dmabuf_mr(domain, 0, 0, 0, -1, 0);
        const int error = errno;
        if (region != nullptr && functions_.ibv_dereg_mr) functions_.ibv_dereg_mr(region);
        functions_.ibv_dealloc_pd(domain);
        return region != nullptr || (error != EOPNOTSUPP && error != EPROTONOSUPPORT && error != ENOSYS);
    }

    const abi::Functions& functions_;
    const std::string file_;
    abi::Context* context_;
    int error_;
};

}  // namespace

Result<std::vector<RdmaDevice>> devices(const std::string& library) {
    Result<verbs::Functions> loaded = load_functions(library);
    if (!loaded) return loaded.take_status();
    const abi::Functions& functions = **loaded;
    const StandardNumbers held;  // the library opens device files
    int count = 0;
    errno = 0;
    DeviceRow** rows = functions.ibv_get_device_list(&count);
    if (rows == nullptr)
        return fail(error::system_call, "libibverbs lists no devices: {}",
                    errno == ENOSYS || errno == 0 ? "the kernel has no RDMA" : errno_text(errno));
    std::vector<RdmaDevice> all;
    for (int i = 0; i < std::min(count, devices_most) && rows[i] != nullptr; ++i) {
        RdmaDevice& device = all.emplace_back();
        device.name = text_of(rows[i]->name);
        OpenDevice(functions, rows[i]).describe(device);
    }
    functions.ibv_free_device_list(rows);
    return all;
}

}  // namespace weft::internal::verbs
