# The hub image, from a wheel. BASE_IMAGE is any Debian-based Python >= 3.11 image of your registry:
#
#   pip wheel --no-deps -w dist . ./images/lab
#   docker build --build-arg BASE_IMAGE=python:3.12-slim-bookworm -t berth-hub .
#
# The local backend runs every notebook in this one container as this one user, and listens on loopback only: run it
# with --network=host on a machine of your own. The data folder is a volume; whoever may read it may read everything.
ARG BASE_IMAGE=python:3.12-slim-bookworm
FROM ${BASE_IMAGE}

ENV PYTHONDONTWRITEBYTECODE= \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --create-home --uid 1000 berth \
 && install --directory --owner=berth --group=berth --mode=0700 /data

COPY dist/*.whl /tmp/wheels/
RUN wheel=$(ls /tmp/wheels/berth-[0-9]*.whl) \
 && kit=$(ls /tmp/wheels/berth_lab-*.whl) \
 && pip install "${wheel}[examples]" "${kit}" \
 && rm -r /tmp/wheels

USER berth
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGINT

ENTRYPOINT ["berth"]
CMD ["up", "--data", "/data"]
