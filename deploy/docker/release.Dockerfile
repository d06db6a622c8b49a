# The image of a release, from the statically linked binaries of both architectures. The workflow "Release" builds it;
# to build an image from the sources, use Dockerfile.

# The image below has no shell that could make them.
FROM --platform=$BUILDPLATFORM debian:bookworm-slim AS layout
RUN mkdir /data /links && ln -s /usr/local/bin/tidegate /links/ratelimit

FROM gcr.io/distroless/static-debian12
ARG TARGETARCH
COPY ${TARGETARCH}/tidegate /usr/local/bin/tidegate
COPY --from=layout --chown=65534:65534 /data /var/lib/tidegate
# The program of the reference server's image: its environment variables apply under this name.
COPY --from=layout /links/ /bin/
# A container is reached by its own address, not by loopback.
ENV TIDEGATE_LISTEN=0.0.0.0:8081
EXPOSE 8081
USER 65534:65534
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["serve"]
