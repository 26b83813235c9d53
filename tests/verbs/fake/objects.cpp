// objects.cpp: the exported functions for devices, domains, memory, channels, completion queues and events.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/verbs/fake/fake.hpp"

namespace weft::internal::test::fake_ibverbs {

void misuse(const char* text) {
    std::fprintf(stderr, "fake_ibverbs: %s\n", text);
    std::abort();
}

void raise(Context& context, abi::AsyncEvent event) {
    std::lock_guard held(context.lock);
    context.events.push_back(event);
    eventfd_write(context.async_fd, 1);
}

void push(Queue& queue, const QueueEntry& entry) {
    std::lock_guard held(queue.lock);
    if (queue.overrun || queue.entries_held.size() >= size_t(queue.entries)) {
        // This completion is lost, and so are the later ones, as with a device.
        if (!std::exchange(queue.overrun, true)) {
            ++queue.async_fetched;
            raise(fake(queue.context), {{.queue = &queue}, verbs::event::cq_error});
        }
        return;
    }
    queue.entries_held.push_back(entry);
    queue.count.store(queue.entries_held.size());
    if (!std::exchange(queue.armed, false) || queue.channel == nullptr) return;
    Channel& channel = fake(queue.channel);
    std::lock_guard channel_held(channel.lock);
    channel.events.push_back(&queue);
    eventfd_write(channel.fd, 1);
}

namespace {

struct DeviceList {
    std::vector<abi::DeviceRow*> rows;
};

template <class T>
T* failed(int error) {
    errno = error;
    return nullptr;
}

// The error that a call must have, because of a statement or a device that is gone.
int refusal(const char* function, abi::Context* context) {
    if (const int error = World::get().failing(function)) return error;
    return fake(context).of->removed ? EIO : 0;
}

int poll(abi::Queue* of, int most, abi::Completion* completions) {
    Queue& queue = fake(of);
    if (World::get().failing("poll_cq") != 0) return -1;
    if (most <= 0 || queue.count.load(std::memory_order_relaxed) == 0) return 0;
    std::lock_guard held(queue.lock);
    int taken = 0;
    for (; taken < most && !queue.entries_held.empty(); ++taken) {
        const QueueEntry& entry = queue.entries_held.front();
        completions[taken] = entry.completion;
        if (entry.receive)
            --entry.pair->receives_used;
        else
            entry.pair->sends_used -= entry.freed;
        queue.entries_held.pop_front();
    }
    queue.count.store(queue.entries_held.size());
    return taken;
}

// A completion that came before is no reason for an event: the caller must poll after it.
int arm(abi::Queue* of, int) {
    if (const int error = refusal("req_notify_cq", of->context)) return error;
    Queue& queue = fake(of);
    std::lock_guard held(queue.lock);
    queue.armed = true;
    return 0;
}

// Whether the address is in the device memory of tests/fake_cuda, which is a file.
bool is_of_gpu(const void* address) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("/memfd:fake_cuda ") == std::string::npos) continue;
        uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::istringstream(line) >> std::hex >> begin >> dash >> end;
        if (uintptr_t(address) >= begin && uintptr_t(address) < end) return true;
    }
    return false;
}

Region* make_region(abi::Domain* domain, void* address, size_t bytes, uint64_t place, int access) {
    World& world = World::get();
    const uint64_t pages = (bytes + 4'095) / 4'096 * 4'096;
    if (world.pinned + pages > world.memlock) return failed<Region>(ENOMEM);
    if ((access & (verbs::access::remote_write | verbs::access::remote_atomic)) &&
        !(access & verbs::access::local_write))
        return failed<Region>(EINVAL);
    world.pinned += pages;
    auto* region = new Region;
    region->context = domain->context;
    region->domain = domain;
    region->address = address;
    region->bytes = bytes;
    region->access = access;
    region->address_of_peer = place;
    region->counted = pages;
    region->of_gpu = is_of_gpu(address);
    Engine::get().add(*region);
    ++world.objects;
    return region;
}

}  // namespace

int poll_queue(abi::Queue* queue, int most, abi::Completion* completions) { return poll(queue, most, completions); }
int arm_queue(abi::Queue* queue, int solicited) { return arm(queue, solicited); }
int post_sends(abi::Pair* pair, abi::SendRequest* first, abi::SendRequest** failed);
int post_receives(abi::Pair* pair, abi::ReceiveRequest* first, abi::ReceiveRequest** failed);

}  // namespace weft::internal::test::fake_ibverbs

using namespace weft::internal::test::fake_ibverbs;
namespace verbs = weft::internal::verbs;

extern "C" {

abi::DeviceRow** ibv_get_device_list(int* count) {
    World& world = World::get();
    if (const int error = world.failing("ibv_get_device_list")) return failed<abi::DeviceRow*>(error);
    std::lock_guard held(world.mutex);
    auto** rows = new abi::DeviceRow*[world.devices.size() + 1]();
    for (size_t i = 0; i < world.devices.size(); ++i) rows[i] = world.devices[i].get();
    if (count != nullptr) *count = int(world.devices.size());
    return rows;
}
void ibv_free_device_list(abi::DeviceRow** rows) { delete[] rows; }

abi::Context* ibv_open_device(abi::DeviceRow* row) {
    World& world = World::get();
    if (const int error = world.failing("ibv_open_device")) return failed<abi::Context>(error);
    auto* context = new Context;
    context->device = row;
    context->operations.poll_cq = poll_queue;
    context->operations.req_notify_cq = arm_queue;
    context->operations.post_send = post_sends;
    context->operations.post_recv = post_receives;
    context->command_fd = -1;
    context->vectors = 1;
    context->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    context->of = static_cast<Device*>(row);
    if (context->of->removed) {
        close(context->async_fd);
        delete context;
        return failed<abi::Context>(ENODEV);
    }
    Engine::get().open(*context);
    ++world.objects;
    return context;
}
int ibv_close_device(abi::Context* of) {
    Context& context = fake(of);
    Engine::get().close(context);
    close(context.async_fd);
    delete &context;
    --World::get().objects;
    return 0;
}

int ibv_query_device(abi::Context* context, abi::DeviceAttributes* attributes) {
    if (const int error = refusal("ibv_query_device", context)) return error;
    *attributes = {};
    std::snprintf(attributes->firmware, sizeof attributes->firmware, "fake");
    attributes->node_guid[7] = attributes->system_guid[7] = uint8_t(fake(context).of->port(1).lid);
    attributes->limits = {UINT64_MAX, 4'096,   0x77657f, 1,       1,      World::get().max_qp, 8'192, 0, 8, 8,
                          1 << 16,    1 << 16, 1 << 20,  1 << 16, {16, 0}};
    attributes->keys_most = 16;
    attributes->ports = uint8_t(fake(context).of->ports.size());
    return 0;
}
int ibv_query_port(abi::Context* context, uint8_t number, abi::PortAttributes* attributes) {
    if (const int error = refusal("ibv_query_port", context)) return error;
    std::lock_guard held(World::get().mutex);
    if (!fake(context).of->has_port(number)) return EINVAL;
    const Port& port = fake(context).of->port(number);
    *attributes = {};
    attributes->state = port.up ? 4 : 1;
    attributes->mtu_most = 5;
    attributes->mtu = port.mtu;
    attributes->gids = port.gids.empty() ? 0 : port.gids.rbegin()->first + 1;
    attributes->message_bytes_most = 1u << 31;
    attributes->keys = uint16_t(port.keys.rbegin()->first + 1);
    attributes->lid = port.layer == verbs::link_infiniband ? port.lid : uint16_t(0);
    attributes->width = uint8_t(port.width);
    attributes->speed = uint8_t(port.speed);
    attributes->physical_state = port.up ? 5 : 3;
    attributes->link_layer = uint8_t(port.layer);
    attributes->flags = port.grh_required ? verbs::grh_required : 0;
    return 0;
}
int ibv_query_gid(abi::Context* context, uint8_t number, int index, uint8_t* gid) {
    if (refusal("ibv_query_gid", context) != 0) return -1;
    std::lock_guard held(World::get().mutex);
    if (!fake(context).of->has_port(number)) return -1;
    const auto& gids = fake(context).of->port(number).gids;
    const auto found = gids.find(index);
    if (found == gids.end()) return -1;
    memcpy(gid, found->second.gid, 16);
    return 0;
}
ssize_t _ibv_query_gid_table(abi::Context* context, abi::GidEntry* entries, size_t most, uint32_t, size_t bytes) {
    if (const int error = refusal("_ibv_query_gid_table", context)) return -error;
    std::lock_guard held(World::get().mutex);
    if (bytes != sizeof *entries) return -EINVAL;
    size_t count = 0;
    for (const Port& port : fake(context).of->ports)
        for (const auto& row : port.gids) {
            if (count == most) return -EINVAL;
            entries[count++] = row.second;
        }
    return ssize_t(count);
}
int ibv_query_pkey(abi::Context* context, uint8_t number, int index, uint16_t* key) {
    if (refusal("ibv_query_pkey", context) != 0) return -1;
    std::lock_guard held(World::get().mutex);
    if (!fake(context).of->has_port(number)) return -1;
    const auto& keys = fake(context).of->port(number).keys;
    const auto found = keys.find(index);
    if (found == keys.end()) return -1;
    *key = __builtin_bswap16(found->second);
    return 0;
}

abi::Domain* ibv_alloc_pd(abi::Context* context) {
    if (const int error = refusal("ibv_alloc_pd", context)) return failed<abi::Domain>(error);
    ++World::get().objects;
    return new abi::Domain{context, 0};
}
int ibv_dealloc_pd(abi::Domain* domain) {
    delete domain;
    --World::get().objects;
    return 0;
}

// An address: a copy of what it was made of.
abi::AddressHandle* ibv_create_ah(abi::Domain* domain, abi::Address* address) {
    if (const int error = refusal("ibv_create_ah", domain->context)) return failed<abi::AddressHandle>(error);
    std::lock_guard held(World::get().mutex);
    Device& device = *fake(domain->context).of;
    if (!device.has_port(address->port_num)) return failed<abi::AddressHandle>(EINVAL);
    Port& port = device.port(address->port_num);
    const int index = address->grh.sgid_index;
    if (address->is_global && port.gids.count(index) == 0) return failed<abi::AddressHandle>(EINVAL);
    if (const auto found = port.refused.find(index); address->is_global && found != port.refused.end())
        return failed<abi::AddressHandle>(found->second);
    ++World::get().objects;
    return reinterpret_cast<abi::AddressHandle*>(new abi::Address(*address));
}
int ibv_destroy_ah(abi::AddressHandle* handle) {
    delete reinterpret_cast<abi::Address*>(handle);
    --World::get().objects;
    return 0;
}

abi::Region* ibv_reg_mr(abi::Domain* domain, void* address, size_t bytes, int access) {
    if (const int error = refusal("ibv_reg_mr", domain->context)) return failed<abi::Region>(error);
    if (access & verbs::access::relaxed_ordering) misuse("ibv_reg_mr takes no optional flags");
    if (is_of_gpu(address) && !World::get().peermem) return failed<abi::Region>(EFAULT);
    return make_region(domain, address, bytes, uintptr_t(address), access);
}
abi::Region* ibv_reg_mr_iova2(abi::Domain* domain, void* address, size_t bytes, uint64_t place, unsigned access) {
    if (const int error = refusal("ibv_reg_mr_iova2", domain->context)) return failed<abi::Region>(error);
    if (is_of_gpu(address) && !World::get().peermem) return failed<abi::Region>(EFAULT);
    return make_region(domain, address, bytes, place, int(access));
}
// The dma-buf of a fake GPU is a file that the caller can map, too.
abi::Region* ibv_reg_dmabuf_mr(abi::Domain* domain, uint64_t offset, size_t bytes, uint64_t place, int fd, int access) {
    if (const int error = refusal("ibv_reg_dmabuf_mr", domain->context)) return failed<abi::Region>(error);
    if (const int error = World::get().dma_buf; error != EBADF) return failed<abi::Region>(error);
    if (fd < 0) return failed<abi::Region>(EBADF);
    if ((place & 4'095) != (offset & 4'095)) return failed<abi::Region>(EINVAL);
    const uint64_t first = offset / 4'096 * 4'096;
    const size_t mapped_bytes = size_t((offset + bytes + 4'095) / 4'096 * 4'096 - first);
    void* mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off_t(first));
    if (mapped == MAP_FAILED) return failed<abi::Region>(EINVAL);
    Region* region = make_region(domain, static_cast<std::byte*>(mapped) + (offset - first), bytes, place, access);
    if (region == nullptr) {
        const int error = errno;
        munmap(mapped, mapped_bytes);
        return failed<abi::Region>(error);
    }
    region->mapped = mapped;
    region->mapped_bytes = mapped_bytes;
    region->of_gpu = true;
    return region;
}
int ibv_dereg_mr(abi::Region* of) {
    if (const int error = World::get().failing("ibv_dereg_mr")) return error;
    Region& region = fake(of);
    Engine::get().remove(region);
    World::get().pinned -= region.counted;
    if (region.mapped != nullptr) munmap(region.mapped, region.mapped_bytes);
    delete &region;
    --World::get().objects;
    return 0;
}

abi::Channel* ibv_create_comp_channel(abi::Context* context) {
    if (const int error = refusal("ibv_create_comp_channel", context)) return failed<abi::Channel>(error);
    auto* channel = new Channel;
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    channel->references = 0;
    ++World::get().objects;
    return channel;
}
int ibv_destroy_comp_channel(abi::Channel* of) {
    Channel& channel = fake(of);
    if (channel.references > 0) return EBUSY;
    close(channel.fd);
    delete &channel;
    --World::get().objects;
    return 0;
}
abi::Queue* ibv_create_cq(abi::Context* context, int entries, void* user, abi::Channel* channel, int) {
    if (const int error = refusal("ibv_create_cq", context)) return failed<abi::Queue>(error);
    if (entries < 1) return failed<abi::Queue>(EINVAL);
    auto* queue = new Queue;
    queue->context = context;
    queue->channel = channel;
    queue->user = user;
    queue->entries = entries;
    if (channel != nullptr) ++channel->references;
    ++World::get().objects;
    return queue;
}
int ibv_destroy_cq(abi::Queue* of) {
    Queue& queue = fake(of);
    if (queue.signals != queue.acknowledged) misuse("ibv_destroy_cq would wait for an unacknowledged completion event");
    if (queue.channel != nullptr) {
        Channel& channel = fake(queue.channel);
        std::lock_guard held(channel.lock);
        std::erase(channel.events, of);
        --channel.references;
    }
    Context& context = fake(queue.context);
    {
        std::lock_guard held(context.lock);
        std::erase_if(context.events, [&](const abi::AsyncEvent& event) {
            return event.type == verbs::event::cq_error && event.element.queue == of;
        });
    }
    delete &queue;
    --World::get().objects;
    return 0;
}
int ibv_get_cq_event(abi::Channel* of, abi::Queue** queue, void** user) {
    Channel& channel = fake(of);
    for (;;) {
        eventfd_t count = 0;
        if (eventfd_read(channel.fd, &count) != 0) return -1;
        std::lock_guard held(channel.lock);
        if (channel.events.empty()) continue;  // of a queue that is gone
        *queue = channel.events.front();
        channel.events.pop_front();
        ++fake(*queue).signals;
        *user = (*queue)->user;
        return 0;
    }
}
void ibv_ack_cq_events(abi::Queue* queue, unsigned count) { fake(queue).acknowledged += count; }

int ibv_get_async_event(abi::Context* of, abi::AsyncEvent* event) {
    Context& context = fake(of);
    for (;;) {
        eventfd_t count = 0;
        if (eventfd_read(context.async_fd, &count) != 0) return -1;
        std::lock_guard held(context.lock);
        if (context.events.empty()) continue;  // of an object that is gone
        *event = context.events.front();
        context.events.pop_front();
        if (event->type >= verbs::event::qp_fatal && event->type <= verbs::event::path_migration_error)
            ++fake(event->element.pair).async_fetched;
        return 0;
    }
}
void ibv_ack_async_event(abi::AsyncEvent* event) {
    if (event->type >= verbs::event::qp_fatal && event->type <= verbs::event::path_migration_error)
        ++fake(event->element.pair).async_acknowledged;
}

int ibv_is_fork_initialized() { return World::get().fork_status; }
int ibv_fork_init() { return World::get().failing("ibv_fork_init"); }
}
