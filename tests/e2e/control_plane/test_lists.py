"""Lists and watches of more than a page, on a real API server."""

from elasticdl.kube.list_and_watch import Listing, WatchEvent, reflect


def test_all_pages_of_a_list_are_there_and_what_comes_after_them(rig, run) -> None:
    names = {f"many-{number}" for number in range(120)}
    labels = {"labels": {"of": "many"}}
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **labels}}
        for name in sorted(names)
    ]
    rig.apply(*maps)

    async def story() -> None:
        seen = reflect(
            rig.admin, f"{rig.path}/configmaps", {"labelSelector": "of=many"}
        )
        first = await anext(seen)
        assert isinstance(first, Listing)
        assert {one["metadata"]["name"] for one in first.items} == names
        rig.patch("configmaps/many-7", {"data": {"a": "b"}})
        event = await anext(seen)
        assert isinstance(event, WatchEvent)
        assert event.item["data"] == {"a": "b"}
        await seen.aclose()

    run(story())
