// fake_verbs.cpp: a libibverbs with the devices of FAKE_VERBS. Statements are separated by semicolons, each after its
// owner:
//
//   device NAME [denied|mute]        that cannot be opened, or asked
//   port STATE WIDTH SPEED LAYER     numbers as the library gives them
//
//   port mute                        that cannot be asked
//   gid GROUPS TYPE                  "fe80:0000:0000:0000:0c42:a103:0065:ba1a"
//   dma_buf ERRNO                    the error of registering one
//
// "none": there are no devices; "error": they cannot be listed. -DOLD: a library from before dma-buf and tables of
// GIDs.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "src/drivers/verbs/layout.hpp"

using namespace weft::internal::verbs::abi;

namespace {

struct FakeContext : Context {
    std::string mode;
    std::vector<PortAttributes> ports;
    std::vector<GidEntry> gids;
    int dma_buf = EBADF;
};
struct FakeDevice {
    DeviceRow row{};
    FakeContext context;
};

GidEntry gid_of(std::istream& words, uint32_t port) {
    GidEntry entry{};
    std::string groups;
    words >> groups >> entry.type;
    std::erase(groups, ':');
    for (size_t i = 0; i + 1 < groups.size() && i < 32; i += 2)
        entry.gid[i / 2] = uint8_t(std::stoi(groups.substr(i, 2), nullptr, 16));
    entry.port = port;
    return entry;
}

FakeContext& fake(Context* context) { return *static_cast<FakeContext*>(context); }

int opened = 0;  // and not closed

std::vector<FakeDevice*> read_world(const std::string& text) {
    std::vector<FakeDevice*> world;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line, ';');) {
        std::istringstream words(line);
        std::string what;
        words >> what;
        if (what == "device") {
            auto* device = new FakeDevice;
            std::string name;
            words >> name >> device->context.mode;
            const std::string file = "uverbs" + std::to_string(world.size());
            std::strncpy(device->row.name, name.c_str(), sizeof device->row.name - 1);
            std::strncpy(device->row.file, file.c_str(), sizeof device->row.file - 1);
            std::strncpy(device->row.device_path, ("/sys/class/infiniband/" + name).c_str(),
                         sizeof device->row.device_path - 1);
            world.push_back(device);
        } else if (what == "port") {
            int state = 0, width = 0, speed = 0, layer = 0;
            words >> state >> width >> speed >> layer;  // of a mute one none is a number: the state stays 0
            PortAttributes& port = world.back()->context.ports.emplace_back();
            port = {};
            port.state = state;
            port.width = uint8_t(width);
            port.speed = uint8_t(speed);
            port.link_layer = uint8_t(layer);
        } else if (what == "gid") {
            FakeContext& context = world.back()->context;
            context.gids.push_back(gid_of(words, uint32_t(context.ports.size())));
            ++context.ports.back().gids;
        } else if (what == "dma_buf") {
            words >> world.back()->context.dma_buf;
        }
    }
    return world;
}

}  // namespace

extern "C" {

DeviceRow** ibv_get_device_list(int* count) {
    const char* text = std::getenv("FAKE_VERBS");
    const std::string world = text ? text : "none";
    if (world == "error") return errno = ENOSYS, nullptr;
    const std::vector<FakeDevice*> all = read_world(world == "none" ? "" : world);
    auto** rows = new DeviceRow*[all.size() + 1]();
    for (size_t i = 0; i < all.size(); ++i) rows[i] = &all[i]->row;
    *count = int(all.size());
    return rows;
}
void ibv_free_device_list(DeviceRow** rows) {
    if (opened != 0) std::abort();
    for (size_t i = 0; rows[i] != nullptr; ++i) delete reinterpret_cast<FakeDevice*>(rows[i]);
    delete[] rows;
}
Context* ibv_open_device(DeviceRow* row) {
    FakeContext& context = reinterpret_cast<FakeDevice*>(row)->context;
    if (context.mode == "denied") return errno = EACCES, nullptr;
    ++opened;
    return &context;
}
int ibv_close_device(Context*) { return --opened, 0; }
int ibv_query_device(Context* opened_device, DeviceAttributes* attributes) {
    const FakeContext* context = &fake(opened_device);
    if (context->mode == "mute") return EIO;
    const uint8_t guid[8] = {0x0c, 0x42, 0xa1, 0x03, 0x00, 0x65, 0xba, 0x1a};
    std::memcpy(attributes->node_guid, guid, sizeof guid);
    attributes->ports = uint8_t(context->ports.size());
    return 0;
}
int ibv_query_port(Context* opened_device, uint8_t port, PortAttributes* attributes) {
    const FakeContext* context = &fake(opened_device);
    if (port < 1 || port > context->ports.size()) return EINVAL;
    if (context->ports[port - 1].state == 0) return EIO;
    *attributes = context->ports[port - 1];
    return 0;
}
int ibv_query_gid(Context* context, uint8_t port, int index, uint8_t* gid) {
    for (const GidEntry& entry : fake(context).gids) {
        if (entry.port != port || index-- != 0) continue;
        std::memcpy(gid, entry.gid, sizeof entry.gid);
        return 0;
    }
    return -1;
}
#ifndef OLD
ssize_t _ibv_query_gid_table(Context* context, GidEntry* entries, size_t entries_most, uint32_t, size_t entry_bytes) {
    const std::vector<GidEntry>& gids = fake(context).gids;
    if (entry_bytes != sizeof(GidEntry) || entries_most < gids.size()) return -EINVAL;
    std::memcpy(entries, gids.data(), gids.size() * sizeof(GidEntry));
    return ssize_t(gids.size());
}
Domain* ibv_alloc_pd(Context* context) { return new Domain{context, 0}; }
int ibv_dealloc_pd(Domain* domain) { return delete domain, 0; }
Region* ibv_reg_dmabuf_mr(Domain* domain, uint64_t, size_t, uint64_t, int, int) {
    return errno = fake(domain->context).dma_buf, nullptr;
}
#endif
}
