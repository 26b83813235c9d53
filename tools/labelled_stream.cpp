#include "tools/labelled_stream.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace weft::internal::tools {

Result<LabelledStream> LabelledStream::make(int target) {
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll) return fail(error::system_call, "the output of the ranks cannot be polled: {}", errno_text(errno));
    return LabelledStream(target, std::move(epoll));
}

Status LabelledStream::add(int rank, Fd pipe) {
    auto source = std::make_unique<Source>(Source{rank, std::move(pipe), {}});
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = source.get();
    int number = source->pipe.number();
    if (fcntl(number, F_SETFL, O_NONBLOCK) != 0 || epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, number, &event) != 0) {
        return fail(error::system_call, "the output of rank {} cannot be polled: {}", rank, errno_text(errno));
    }
    sources_.push_back(std::move(source));
    return ok();
}

void LabelledStream::read_some() {
    epoll_event events[64];
    int count = epoll_wait(epoll_.number(), events, 64, 0);
    for (int i = 0; i < count; ++i) read_from(*static_cast<Source*>(events[i].data.ptr));
}

// Returns whether the pipe may have more data.
bool LabelledStream::read_from(Source& source) {
    if (!source.pipe) return false;
    char buffer[64 * 1024];  // a pipe's usual capacity
    ssize_t count = read(source.pipe.number(), buffer, sizeof buffer);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
    if (count <= 0) {
        end_line(source);
        close_pipe(source);
        return false;
    }
    const char* end = buffer + count;
    for (const char* text = buffer; text < end;) {
        const char* newline = static_cast<const char*>(memchr(text, '\n', size_t(end - text)));
        source.line.append(text, newline != nullptr ? newline : end);
        if (newline == nullptr && source.line.size() < line_limit_bytes) break;
        queue_ += fmt::format("[{}] {}\n", source.rank, source.line);
        source.line.clear();
        text = newline != nullptr ? newline + 1 : end;
    }
    return true;
}

void LabelledStream::end_line(Source& source) {
    if (!source.line.empty()) queue_ += fmt::format("[{}] {}\n", source.rank, source.line);
    source.line.clear();
}

void LabelledStream::close_pipe(Source& source) {
    // close() alone does not remove the pipe from the epoll set: a rank between fork and exec has the descriptor, too.
    if (source.pipe) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, source.pipe.number(), nullptr);
    source.pipe.reset();
}

void LabelledStream::write_some() {
    // A descriptor that poll reports writable takes PIPE_BUF bytes without blocking.
    pollfd wanted = {target_, POLLOUT, 0};
    while (has_queued() && poll(&wanted, 1, 0) > 0) write_up_to(PIPE_BUF);
}

void LabelledStream::write_up_to(size_t limit_bytes) {
    ssize_t count = write(target_, queue_.data() + written_, std::min(limit_bytes, queue_.size() - written_));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count < 0) {
        error_ = errno;
        for (auto& source : sources_) close_pipe(*source);
        queue_.clear();
        written_ = 0;
        return;
    }
    written_ += size_t(count);
    if (!has_queued() || written_ >= queue_limit_bytes) {
        queue_.erase(0, written_);
        written_ = 0;
    }
}

void LabelledStream::finish() {
    for (auto& source : sources_) {
        while (read_from(*source)) {
            if (!has_room()) write_up_to(SIZE_MAX);
        }
        end_line(*source);
        close_pipe(*source);
    }
    while (has_queued()) {
        pollfd wanted = {target_, POLLOUT, 0};
        poll(&wanted, 1, -1);  // another process may have made the shared target non-blocking
        write_up_to(SIZE_MAX);
    }
}

}  // namespace weft::internal::tools
