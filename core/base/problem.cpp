#include "base/problem.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/array_checks.h"
#include "base/fail.h"
#include "base/overflow.h"

namespace stead {
namespace {

constexpr std::int64_t max_operators = std::int64_t{1} << 24;

/// Columns of the tables: one for each device, or one for each class of equal devices.
std::size_t column_count(const ProblemArrays& given) {
    if (given.column.empty()) return given.devices;
    return std::size_t{*std::max_element(given.column.begin(), given.column.end())} + 1;
}

/// Equal devices may share columns only in clusters that are too large for code that expects one for each.
void check_columns(const ProblemArrays& given, std::size_t columns) {
    if (given.column.empty()) return;
    check_size("column", given.column.size(), given.devices);
    if (given.devices <= mask_devices && columns != static_cast<std::size_t>(given.devices))
        fail("devices may share columns in clusters of more than ", mask_devices, " devices, this one has ",
             given.devices);
    for (std::size_t d = 0; d < given.column.size() && given.devices <= mask_devices; ++d)
        if (given.column[d] != d) fail("column of device ", d, " must be its own, got ", +given.column[d]);
}

void check_counts(const ProblemArrays& given) {
    if (given.operators < 0 || given.operators > max_operators)
        fail("the number of operators must lie in 0..", max_operators, ", got ", given.operators);
    if (given.devices < 1 || given.devices > max_devices)
        fail("the number of devices must lie in 1..", max_devices, ", got ", given.devices);
    const std::size_t n = given.operators, k = given.devices, columns = column_count(given);
    const std::size_t tensors = given.tensor_bytes.size(), weights = given.weight_bytes.size();
    constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
    if (std::max({tensors, weights, given.consumer.size(), given.weight_user.size()}) >= most)
        fail("tensors, weights, readers and users must each be fewer than ", most);
    check_size("seconds", given.seconds.size(), n * columns);
    check_size("workspace_bytes", given.workspace_bytes.size(), n * columns);
    check_columns(given, columns);
    check_size("tensor_first", given.tensor_first.size(), n + 1);
    check_size("tensor_kept", given.tensor_kept.size(), tensors);
    check_size("consumer_first", given.consumer_first.size(), tensors + 1);
    check_size("weight_user_first", given.weight_user_first.size(), weights + 1);
    check_size("latency_seconds", given.latency_seconds.size(), k * k);
    check_size("bytes_per_second", given.bytes_per_second.size(), k * k);
    check_size("gap_seconds", given.gap_seconds.size(), k * k);
    check_size("channel", given.channel.size(), k * k);
    check_size("hops", given.hops.size(), k * k);
    check_size("memory_bytes", given.memory_bytes.size(), k);
    if (!given.tensor_seconds.empty()) check_size("tensor_seconds", given.tensor_seconds.size(), tensors);
    check_size("phase", given.phase.size(), n);
    check_size("host", given.host.size(), k);
    check_size("host_latency_seconds", given.host_latency_seconds.size(), 2 * k);
    check_size("host_bytes_per_second", given.host_bytes_per_second.size(), 2 * k);
    if (given.routing != 0 && given.routing != 1)
        fail("routing must be 0 (direct) or 1 (by host memory), got ", given.routing);
}

void check_graph(const ProblemArrays& given) {
    check_not_negative("seconds", given.seconds);
    check_not_negative("workspace_bytes", given.workspace_bytes);
    check_runs("tensor_first", given.tensor_first, given.tensor_bytes.size());
    check_not_negative("tensor_bytes", given.tensor_bytes);
    check_at_most("tensor_kept", given.tensor_kept, 1);
    check_runs("consumer_first", given.consumer_first, given.consumer.size());
    check_not_negative("weight_bytes", given.weight_bytes);
    check_runs("weight_user_first", given.weight_user_first, given.weight_user.size());
    check_increasing("weight_user", given.weight_user_first, given.weight_user, "operator", given.operators,
                     [](std::size_t) { return -1; });
    check_at_most("phase", given.phase, 2);
    for (std::size_t t = 0; t < given.tensor_seconds.size(); ++t)
        if (!(given.tensor_seconds[t] >= 0) || std::isinf(given.tensor_seconds[t]))
            fail("tensor_seconds must be finite and at least 0, but tensor ", t, " has ", given.tensor_seconds[t]);
}

/// The producers of all tensors; after that their readers can be checked.
std::vector<std::int32_t> producers(std::span<const std::int32_t> tensor_first) {
    std::vector<std::int32_t> producer(tensor_first.back());
    for (std::size_t v = 0; v + 1 < tensor_first.size(); ++v)
        std::fill(producer.begin() + tensor_first[v], producer.begin() + tensor_first[v + 1],
                  static_cast<std::int32_t>(v));
    return producer;
}

/// A checked link without channel; `where` tells the reader of an error which one it is.
Link make_link(const std::string& where, double latency_seconds, double bytes_per_second, double gap_seconds) {
    if (!(latency_seconds >= 0)) fail("latency_seconds of ", where, " must be at least 0, got ", latency_seconds);
    if (!(gap_seconds >= 0) || std::isinf(gap_seconds))
        fail("gap_seconds of ", where, " must be finite and at least 0, got ", gap_seconds);
    const bool reachable = !std::isinf(latency_seconds);
    if (!(bytes_per_second >= 0) || (reachable && bytes_per_second == 0))
        fail("bytes_per_second of ", where, " must be above 0, got ", bytes_per_second);
    if (!reachable) return {};
    const double ps_per_byte = ticks_per_second / bytes_per_second;
    if (std::isinf(ps_per_byte)) fail("bytes_per_second of ", where, " is too small: ", bytes_per_second);
    return {.ps_per_byte = ps_per_byte,
            .latency = saturating_round(latency_seconds * ticks_per_second),
            .gap = saturating_round(gap_seconds * ticks_per_second)};
}

std::string pair_name(std::size_t s, std::size_t d) {
    return "device " + std::to_string(s) + " to device " + std::to_string(d);
}

std::vector<Link> make_links(const ProblemArrays& given) {
    const std::size_t k = given.devices;
    std::vector<Link> links(k * k);
    for (std::size_t s = 0; s < k; ++s)
        for (std::size_t d = 0; d < k; ++d) {
            if (s == d) continue;
            const std::size_t i = s * k + d;
            links[i] =
                make_link(pair_name(s, d), given.latency_seconds[i], given.bytes_per_second[i], given.gap_seconds[i]);
            if (given.channel[i] < by_sender)
                fail("channel of ", pair_name(s, d), " must be -2 or more, got ", given.channel[i]);
            if (given.hops[i] < 0) fail("hops of ", pair_name(s, d), " must be at least 0, got ", given.hops[i]);
            links[i].channel = given.channel[i];
            links[i].hops = given.hops[i];
        }
    return links;
}

std::vector<Link> make_host_links(const ProblemArrays& given, std::size_t row, const char* direction) {
    const std::size_t k = given.devices;
    std::vector<Link> links(k);
    for (std::size_t d = 0; d < k; ++d) {
        const std::string where = "device " + std::to_string(d) + direction;
        const std::size_t i = row * k + d;
        if (given.host[d])
            links[d] = {.latency = 0, .hops = 0};  // it computes in host memory: nothing moves
        else
            links[d] = make_link(where, given.host_latency_seconds[i], given.host_bytes_per_second[i], 0.0);
    }
    return links;
}

/// Renumbers the channels of `links` as 0, 1, ... and returns the given numbers in that order.
std::vector<std::int32_t> number_channels(std::vector<Link>& links) {
    std::vector<std::int32_t> names;
    for (const Link& link : links)
        if (link.channel >= 0) names.push_back(link.channel);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (Link& link : links)
        if (link.channel >= 0)
            link.channel =
                static_cast<std::int32_t>(std::lower_bound(names.begin(), names.end(), link.channel) - names.begin());
    return names;
}

bool has_single_senders(const Problem& problem) {
    std::vector<int> sender(problem.channels, -1);
    for (int s = 0; s < problem.devices; ++s)
        for (int d = 0; d < problem.devices; ++d) {
            const int h = problem.link(s, d).channel;
            if (s == d || h < 0) continue;
            if (sender[h] >= 0 && sender[h] != s) return false;
            sender[h] = s;
        }
    return true;
}

}  // namespace

Problem::Problem(const ProblemArrays& given) {
    check_counts(given);
    check_graph(given);
    check_not_negative("memory_bytes", given.memory_bytes);
    check_at_most("host", given.host, 1);
    operators = static_cast<std::int32_t>(given.operators);
    devices = static_cast<std::int32_t>(given.devices);
    columns = static_cast<std::int32_t>(column_count(given));
    column = copy(given.column);
    if (column.empty())
        for (std::int32_t d = 0; d < devices; ++d) column.push_back(static_cast<DeviceIndex>(d));
    tensors = static_cast<std::int32_t>(given.tensor_bytes.size());
    weights = static_cast<std::int32_t>(given.weight_bytes.size());
    take_graph(given);
    take_devices(given);
    derive();
}

void Problem::take_graph(const ProblemArrays& given) {
    tensor_first = copy(given.tensor_first);
    producer = producers(tensor_first);
    check_increasing("consumer", given.consumer_first, given.consumer, "operator", operators,
                     [&](std::size_t t) { return producer[t]; });
    consumer_first = copy(given.consumer_first);
    consumer = copy(given.consumer);
    tensor_bytes = copy(given.tensor_bytes);
    tensor_kept = copy(given.tensor_kept);
    for (const double seconds : given.tensor_seconds) tensor_ticks.push_back(saturating_round(seconds * ticks_per_second));
    workspace_bytes = copy(given.workspace_bytes);
    phase = copy(given.phase);
    weight_bytes = copy(given.weight_bytes);
    weight_user_first = copy(given.weight_user_first);
    weight_user = copy(given.weight_user);
    duration.reserve(given.seconds.size());
    for (const double seconds : given.seconds)
        duration.push_back(std::isinf(seconds) ? impossible : saturating_round(seconds * ticks_per_second));
}

void Problem::take_devices(const ProblemArrays& given) {
    memory_bytes = copy(given.memory_bytes);
    host = copy(given.host);
    routed_by_host = given.routing == 1;
    links = make_links(given);
    channel_names = number_channels(links);
    channels = static_cast<std::int32_t>(channel_names.size());
    host_write = make_host_links(given, 0, " to host memory");
    host_read = make_host_links(given, 1, " from host memory");
}

void Problem::derive() {
    const std::int64_t bytes = all_bytes(*this);  // checked before they are summed up per operator
    inputs.assign(operators, 0);
    output_bytes.assign(operators, 0);
    input_bytes.assign(operators, 0);
    for (std::int32_t t = 0; t < tensors; ++t) {
        output_bytes[producer[t]] += tensor_bytes[t];
        for (std::int32_t i = consumer_first[t]; i < consumer_first[t + 1]; ++i) {
            ++inputs[consumer[i]];
            input_bytes[consumer[i]] += tensor_bytes[t];
        }
        most_transfers += std::min(consumer_first[t + 1] - consumer_first[t], devices - 1);
    }
    for (std::int32_t v = 0; v < operators; ++v)
        if (inputs[v] == 0) sources.push_back(v);

    horizon = find_horizon(*this);
    check_host_horizon(*this);
    for (int s = 0; s < devices; ++s)
        for (int d = 0; d < devices; ++d) carries |= s != d && link(s, d).channel == by_sender;
    const std::int32_t released = channels + (carries ? devices : 0);
    index_bits = std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(std::max(operators, released)))));
    packed_keys = horizon < (never >> index_bits);
    single_sender_channels = has_single_senders(*this);
    runs_everywhere = std::find(duration.begin(), duration.end(), impossible) == duration.end();
    memory_is_ample = *std::min_element(memory_bytes.begin(), memory_bytes.end()) >= bytes;
    for (int s = 0; s < devices; ++s)
        for (int d = 0; d < devices; ++d)
            if (s != d && link(s, d).latency == impossible) all_reachable = false;
}

}  // namespace stead
