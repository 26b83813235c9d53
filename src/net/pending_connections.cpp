#include "src/net/pending_connections.hpp"

#include <algorithm>

namespace weft::internal::net {

void PendingConnections::register_identity(const Identity& identity, bool root) {
    Member& member = members_[identity.name];
    member.identity = identity;
    ++member.registrations;
    member.roots += root;
}

void PendingConnections::unregister_identity(const IdName& name, bool root) {
    const auto found = members_.find(name);
    if (found == members_.end()) return;
    found->second.roots -= root;
    if (--found->second.registrations == 0) members_.erase(found);
}

const Identity* PendingConnections::identity(const IdName& name) const {
    const auto found = members_.find(name);
    return found == members_.end() ? nullptr : &found->second.identity;
}

bool PendingConnections::is_root(const IdName& name) const {
    const auto found = members_.find(name);
    return found != members_.end() && found->second.roots > 0;
}

void PendingConnections::add(const IdName& name, AcceptedConnection connection) {
    Member& member = members_.at(name);
    member.pending.push_back(std::move(connection));
    signal(member);
}

std::optional<AcceptedConnection> PendingConnections::take(const IdName& name, uint32_t kind,
                                                           std::optional<uint64_t> token) {
    const auto found = members_.find(name);
    if (found == members_.end()) return {};
    std::list<AcceptedConnection>& pending = found->second.pending;
    const auto accepted = std::find_if(pending.begin(), pending.end(), [&](const AcceptedConnection& one) {
        return one.purpose.kind == kind && (!token || one.purpose.token == *token);
    });
    if (accepted == pending.end()) return {};
    AcceptedConnection result = std::move(*accepted);
    pending.erase(accepted);
    signal(found->second);
    return result;
}

void PendingConnections::set_trouble(const IdName& name, const std::string& sentence) {
    if (const auto found = members_.find(name); found != members_.end()) found->second.trouble = sentence;
}

Status PendingConnections::trouble(const IdName& name) const {
    const auto found = members_.find(name);
    if (found == members_.end() || found->second.trouble.empty()) return ok();
    return fail(error::mismatch_version, "{}", found->second.trouble);
}

int PendingConnections::descriptor(const IdName& name) {
    const auto found = members_.find(name);
    if (found == members_.end()) return -1;
    if (!found->second.signal) {
        found->second.signal = Fd::event();
        signal(found->second);
    }
    return found->second.signal.number();
}

// Makes the member's descriptor readable exactly if a connection is pending.
void PendingConnections::signal(Member& member) {
    if (!member.signal) return;
    if (member.pending.empty())
        drain_event(member.signal);
    else
        ring_event(member.signal);
}

}  // namespace weft::internal::net
