#include "transports/nccl_net/net.hpp"

#include <strings.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "src/base/log.hpp"
#include "src/drivers/library.hpp"

namespace weft::internal::nccl_net {

namespace {

thread_local std::string last_warning;

// The plugin's lines go to Weft's log, warnings too at INFO, as NCCL hides them by default; error_text() repeats the last
// one. A line that is not wanted is not formatted, because plugins have faulty formats in lines that nobody reads.
[[gnu::format(printf, 5, 6)]] void log_line(int level, unsigned long, const char*, int, const char* format, ...) {
    const bool warning = level == abi::log_warn || level == abi::log_abort;
    const bool wanted =
        log_settings().wants(warning || level <= abi::log_info ? LogLevel::info : LogLevel::trace, LogCategory::net);
    if (!format || (!warning && !wanted)) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    for (char& each : line)
        if (each == '\n' || each == '=') each = ' ';
    if (warning) last_warning = line;
    if (wanted) WEFT_LOG(info, net, "the network plugin {}: {}", warning ? "warns" : "says", line);
}

abi::Answer profile(void**, int, void*, int64_t, void*) { return abi::success; }

const char* answer_name(abi::Answer answer) {
    static constexpr const char* names[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                            "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                            "ncclRemoteError",   "ncclInProgress"};
    return answer >= 0 && size_t(answer) < std::size(names) ? names[answer] : "no known result";
}

Status unusable(const std::string& library, std::string_view why) {
    return fail(error::transport_plugin, "the NCCL network plugin {} cannot be used: {}", library, why);
}

template <class Properties>
Device device_of(int index, const Properties& all) {
    Device device;
    device.index = index;
    device.name = all.name ? all.name : fmt::format("device {}", index);
    device.pci_path = all.pci_path ? all.pci_path : "";
    device.mbps = all.mbps;
    device.pointers = all.pointers;
    if constexpr (requires { all.force_flush; }) device.flush = all.force_flush == 1;
    if constexpr (requires { all.message_bytes_most; }) device.message_bytes_most = all.message_bytes_most;
    if (all.device_type != abi::host_device)
        device.why_not = fmt::format("its data must be unpacked in kernels (device type {})", all.device_type);
    else if ((all.pointers & abi::host_pointer) == 0)
        device.why_not = "it takes no host memory";
    return device;
}

template <int number>
class NetOf final : public Net {
  public:
    NetOf(const abi::Functions<number>& its, const std::string& library) : its_(its), library_(library) {}

    // Its functions, devices and their properties.
    Status init() {
        name_ = its_.name ? its_.name : "";
        version_ = number;
        if (name_.empty()) return unusable(library_, "it has no name");
        if (!its_.init || !its_.devices || !its_.get_properties) return lacks();
        last_warning.clear();
        if (const abi::Answer answer = call_init(); answer != abi::success)
            return unusable(library_, "its init failed: " + error_text(answer));
        int count = 0;
        if (const abi::Answer answer = its_.devices(&count); answer != abi::success)
            return unusable(library_, "it cannot tell its devices: " + error_text(answer));
        if (count <= 0) return unusable(library_, "it finds no device on this host");
        if (!its_.listen || !its_.connect || !its_.accept || !its_.reg_mr || !its_.dereg_mr || !its_.isend ||
            !its_.irecv || !its_.test || !its_.close_send || !its_.close_recv || !its_.close_listen)
            return lacks();
        for (int index = 0; index < count; ++index) {
            abi::Properties<number> properties{};
            if (const abi::Answer answer = its_.get_properties(index, &properties); answer != abi::success)
                return unusable(library_, fmt::format("it cannot tell of device {}: {}", index, error_text(answer)));
            if constexpr (number == 11)
                devices_.push_back(device_of(index, properties.first));
            else
                devices_.push_back(device_of(index, properties));
        }
        for (const Device& device : devices_)
            if (device.why_not.empty()) return ok();
        return unusable(library_, fmt::format("{}: {}", devices_[0].name, devices_[0].why_not));
    }

    abi::Answer listen(int device, void* handle, void** listening) const override {
        last_warning.clear();
        if constexpr (number >= 11)
            return its_.listen(context_, device, handle, listening);
        else
            return its_.listen(device, handle, listening);
    }
    abi::Answer connect(int device, void* handle, void** sending) const override {
        void* in_kernels = nullptr;
        if constexpr (number >= 11) {
            return its_.connect(context_, device, handle, sending, &in_kernels);
        } else if constexpr (number == 10) {
            abi::Config config;
            return its_.connect(device, &config, handle, sending, &in_kernels);
        } else {
            return its_.connect(device, handle, sending, &in_kernels);
        }
    }
    abi::Answer accept_comm(void* listening, void** receiving) const override {
        void* in_kernels = nullptr;
        return its_.accept(listening, receiving, &in_kernels);
    }
    abi::Answer reg(void* comm, void* data, size_t bytes, int type, void** memory) const override {
        last_warning.clear();
        return its_.reg_mr(comm, data, bytes, type, memory);
    }
    abi::Answer reg_dma_buf(void* comm, void* data, size_t bytes, uint64_t offset, int fd,
                            void** memory) const override {
        last_warning.clear();
        return its_.reg_mr_dma_buf ? its_.reg_mr_dma_buf(comm, data, bytes, abi::cuda_pointer, offset, fd, memory)
                                   : no_function;
    }
    abi::Answer dereg(void* comm, void* memory) const override { return its_.dereg_mr(comm, memory); }
    abi::Answer isend(void* sending, void* data, size_t bytes, int tag, void* memory, void** request) const override {
        const auto size = typename abi::Functions<number>::Size(bytes);
        if constexpr (number >= 10)
            return its_.isend(sending, data, size, tag, memory, nullptr, request);
        else
            return its_.isend(sending, data, size, tag, memory, request);
    }
    abi::Answer irecv(void* receiving, void* data, size_t bytes, int tag, void* memory, void** request) const override {
        auto size = typename abi::Functions<number>::Size(bytes);
        if constexpr (number >= 10) {
            void* profiled = nullptr;
            return its_.irecv(receiving, 1, &data, &size, &tag, &memory, &profiled, request);
        } else {
            return its_.irecv(receiving, 1, &data, &size, &tag, &memory, request);
        }
    }
    abi::Answer iflush(void* receiving, void* data, size_t bytes, void* memory, void** request) const override {
        int size = int(bytes);
        return its_.iflush ? its_.iflush(receiving, 1, &data, &size, &memory, request) : no_function;
    }
    abi::Answer test(void* request, bool* done, size_t* bytes) const override {
        int is_done = 0, sizes[abi::receives_most] = {};
        const abi::Answer answer = its_.test(request, &is_done, sizes);
        *done = is_done != 0;
        *bytes = size_t(sizes[0]);
        return answer;
    }
    void close_send(void* sending) const override { (void)its_.close_send(sending); }
    void close_recv(void* receiving) const override { (void)its_.close_recv(receiving); }
    void close_listen(void* listening) const override { (void)its_.close_listen(listening); }

  private:
    static constexpr abi::Answer no_function = 3;  // ncclInternalError

    Status lacks() const { return unusable(library_, fmt::format("its struct of version {} lacks functions", number)); }
    abi::Answer call_init() {
        if constexpr (number >= 11) {
            static abi::Config config;  // the plugin may keep it
            return its_.init(&context_, 0, &config, log_line, profile);
        } else if constexpr (number == 10) {
            return its_.init(log_line, profile);
        } else {
            return its_.init(log_line);
        }
    }

    const abi::Functions<number>& its_;
    std::string library_;
    void* context_ = nullptr;
};

template <int number>
Result<std::unique_ptr<Net>> make(void* symbol, const std::string& library, const std::string& only) {
    const auto& functions = *static_cast<const abi::Functions<number>*>(symbol);
    if (!only.empty() && strcasecmp(functions.name ? functions.name : "", only.c_str()) != 0)
        return unusable(library, fmt::format("its name is {}, and WEFT_NCCL_NET or NCCL_NET asks for {}",
                                             functions.name ? functions.name : "missing", only));
    auto net = std::make_unique<NetOf<number>>(functions, library);
    WEFT_TRY(net->init());
    return std::unique_ptr<Net>(std::move(net));
}

// The newest struct that the plugin exports.
template <int number = abi::newest>
Result<std::unique_ptr<Net>> find(const DynamicLibrary& opened, const std::string& library, const std::string& only) {
    if (void* symbol = opened.find(fmt::format("ncclNetPlugin_v{}", number).c_str()))
        return make<number>(symbol, library, only);
    if constexpr (number > abi::oldest)
        return find<number - 1>(opened, library, only);
    else
        return unusable(library,
                        fmt::format("it exports no ncclNetPlugin of version {} to {}", abi::oldest, abi::newest));
}

}  // namespace

bool Net::takes_device_memory() const {
    for (const Device& device : devices_)
        if (device.why_not.empty() && (device.pointers & (abi::cuda_pointer | abi::dma_buf_pointer)) != 0) return true;
    return false;
}

Result<std::unique_ptr<Net>> load(const std::vector<std::string>& files, const std::string& only) {
    Status missing, unloadable;
    for (const std::string& file : files) {
        auto opened = DynamicLibrary::open(file);
        if (opened) {
            auto net = find(*opened, file, only);
            opened->keep();  // its threads may run until the process ends
            return net;
        }
        const std::string why = opened.status().sentence();
        // Otherwise the file is there, and the text names a library that it needs, or its defect.
        const bool is_absent =
            why.starts_with(file + ": ") && errno_text(ENOENT).starts_with(why.substr(why.rfind(": ") + 2));
        if (!is_absent && unloadable) unloadable = unusable(file, why);
        if (missing) missing = opened.take_status();
    }
    return unloadable ? std::move(missing) : std::move(unloadable);
}

std::string error_text(abi::Answer answer) {
    const std::string warning = std::exchange(last_warning, {});
    return fmt::format("{} ({}){}{}", answer_name(answer), answer, warning.empty() ? "" : ", ", warning);
}

}  // namespace weft::internal::nccl_net
